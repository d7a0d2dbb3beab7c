/* What the C library of macOS exports for launchd's jobs, over inherited descriptors.

   LAUNCHD_SOCKETS="http=3,4;other=5" says which; without it the process is nobody's job.
   free() notes whether the caller gave the array back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern void __libc_free(void *);

static void *handed_out;
static int given_back;

void free(void *memory)
{
    if (memory != NULL && memory == handed_out)
        given_back = 1;
    __libc_free(memory);
}

int array_given_back(void)
{
    return given_back;
}

int launch_activate_socket(const char *name, int **descriptors, size_t *count)
{
    static char taken[256];
    const char *entry = getenv("LAUNCHD_SOCKETS");
    size_t length = strlen(name);

    if (entry == NULL)
        return ESRCH;
    while (strncmp(entry, name, length) != 0 || entry[length] != '=') {
        entry = strchr(entry, ';');
        if (entry == NULL)
            return ENOENT;
        entry++;
    }
    if (strcmp(taken, name) == 0)
        return EALREADY;
    strncpy(taken, name, sizeof taken - 1);

    const char *number = entry + length + 1;
    *descriptors = malloc(strlen(number) * sizeof **descriptors + 1);
    *count = 0;
    while (*number != '\0' && *number != ';') {
        char *end;
        (*descriptors)[(*count)++] = (int)strtol(number, &end, 10);
        number = *end == ',' ? end + 1 : end;
    }
    handed_out = *descriptors;
    return 0;
}
