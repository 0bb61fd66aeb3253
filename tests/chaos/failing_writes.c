/* Writes to files of one folder fail while a file says so: LD_PRELOAD for tests.
 *
 * FAILING_WRITES_BELOW is the beginning of the paths. FAILING_WRITES_SWITCH is a file with an errno and a percentage,
 * as "5 30": so many of a hundred writes and syncs fail. Without the file all succeed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static __thread unsigned int drawn;

static int fails(int fd) {
    const char *below = getenv("FAILING_WRITES_BELOW"), *name = getenv("FAILING_WRITES_SWITCH");
    char link[64], path[4096], text[32] = {0};
    int code = 0, percent = 0, before = errno, file;
    if (!below || !name || (file = open(name, O_RDONLY | O_CLOEXEC)) < 0) {
        errno = before;
        return 0;
    }
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (got <= 0 || length <= 0 || sscanf(text, "%d %d", &code, &percent) != 2) return 0;
    path[length] = 0;
    if (strncmp(path, below, strlen(below)) != 0) return 0;
    if (!drawn) drawn = (unsigned int)getpid() ^ (unsigned int)(size_t)&drawn;
    if ((int)(rand_r(&drawn) % 100) >= percent) return 0;
    errno = code;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) { return fails(fd) ? -1 : NEXT(write)(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return fails(fd) ? -1 : NEXT(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return fails(fd) ? -1 : NEXT(pwrite64)(fd, data, size, at);
}
int fsync(int fd) { return fails(fd) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return fails(fd) ? -1 : NEXT(fdatasync)(fd); }
