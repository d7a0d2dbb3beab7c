"""The shells of the control plane: processes, sockets, files, clocks."""
