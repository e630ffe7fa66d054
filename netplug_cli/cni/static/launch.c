/*
 * Runs the standalone program of the bundle that this file is in, with the interpreter and the libraries of that
 * bundle: the host needs neither Python nor a C library. tools/bundle.py says what else is in a bundle.
 *
 * The lock stays with the process, and the kernel releases it: a bundle that is locked is in use and is not removed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { LOADER, LIBRARIES, PYTHON, START, LOCK, PATHS };

int main(int argc, char **argv)
{
    static const char *const names[PATHS] = {"loader", "libraries", "python/bin/python3", "start.py", "lock"};
    static char folder[PATH_MAX], paths[PATHS][PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *end = length > 0 ? strrchr(folder, '/') : NULL;
    char **command = calloc((size_t)argc + 9, sizeof *command);
    int count = 0;
    if (end != NULL && command != NULL) {
        *end = '\0';
        for (int i = 0; i < PATHS; i++)
            snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
        int lock = open(paths[LOCK], O_RDONLY);
        if (lock >= 0)
            flock(lock, LOCK_SH | LOCK_NB);
        command[count++] = paths[LOADER];
        command[count++] = "--inhibit-cache";
        command[count++] = "--library-path";
        command[count++] = paths[LIBRARIES];
        command[count++] = paths[PYTHON];
        command[count++] = "-IS";
        command[count++] = paths[START];
        for (int i = 0; i < argc; i++)
            command[count++] = argv[i];
        execv(paths[LOADER], command);
    }
    printf("{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 11,\n    \"msg\": \"the standalone program of netplug cannot be"
           " executed; run netplug-install again\",\n    \"details\": \"%s\"\n}\n", strerror(errno));
    return 1;
}
