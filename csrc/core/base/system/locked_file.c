/* Keeps a file with one writer at a time.  See locked_file.h. */
#define _GNU_SOURCE 1 /* flock, mkostemp, O_CLOEXEC */

#include "base/system/locked_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h> /* mkostemp */
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define ATTEMPTS 16
#define MAGIC_BYTES 8

/* Whether the open file begins with MAGIC. */
static bool
begins_with(int descriptor, const void *magic)
{
    char first[MAGIC_BYTES];
    return pread(descriptor, first, sizeof(first), 0) == (ssize_t)sizeof(first) &&
           memcmp(first, magic, sizeof(first)) == 0;
}

/* Whether the open file DESCRIPTOR is the one at PATH. */
static bool
lies_at(const char *path, int descriptor)
{
    struct stat mine, there;
    return fstat(descriptor, &mine) == 0 && stat(path, &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* One attempt to open the file, or the one to be replaced: *DESCRIPTOR is the locked
 * file at PATH, with its *BYTES.  ML_LOCKED_CONTESTED: try again. */
static enum ml_locked_failure
try_open(const char *path, const void *magic, int *descriptor, uint64_t *bytes)
{
    int file;
    do {
        file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
    } while (file < 0 && errno == EINTR);
    if (file < 0) {
        return errno == ELOOP ? ML_LOCKED_LINK : ML_LOCKED_SYSTEM;
    }
    struct stat mine;
    enum ml_locked_failure failure;
    if (fstat(file, &mine) != 0 || !S_ISREG(mine.st_mode)) {
        failure = ML_LOCKED_IRREGULAR;
    }
    else if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        failure = ML_LOCKED_TAKEN;
    }
    else if (!lies_at(path, file)) {
        failure = ML_LOCKED_CONTESTED;
    }
    else if (mine.st_size == 0 || begins_with(file, magic)) {
        *descriptor = file;
        *bytes = (uint64_t)mine.st_size;
        return ML_LOCKED_OK;
    }
    else {
        failure = ML_LOCKED_FOREIGN;
    }
    close(file);
    return failure;
}

static enum ml_locked_failure
make_apart(ml_locked_file *file)
{
    static const char name[] = ".memlab-XXXXXX";
    const char *slash = strrchr(file->path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - file->path) + 1 : 0;
    file->apart = ml_alloc(folder + sizeof(name));
    if (file->apart == NULL) {
        return ML_LOCKED_NO_MEMORY;
    }
    memcpy(file->apart, file->path, folder);
    memcpy(file->apart + folder, name, sizeof(name));
    file->descriptor = mkostemp(file->apart, O_CLOEXEC);
    if (file->descriptor < 0) {
        int error = errno;
        ml_free(file->apart);
        file->apart = NULL;
        errno = error;
        return ML_LOCKED_BESIDE;
    }
    flock(file->descriptor, LOCK_EX | LOCK_NB);
    file->apart[folder] = '\0';
    int around =
        open(folder != 0 ? file->apart : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    file->apart[folder] = name[0];
    file->permission = ml_permission_of(around, file->path + folder);
    ml_permission_begin(&file->permission, file->descriptor, around,
                        file->path + folder);
    if (around >= 0) {
        close(around);
    }
    return ML_LOCKED_OK;
}

enum ml_locked_failure
ml_locked_file_open(ml_locked_file *file, const char *path, const void *magic)
{
    *file = (ml_locked_file){.path = path, .descriptor = -1, .replaced = -1};
    int descriptor = -1;
    uint64_t bytes = 0;
    enum ml_locked_failure failure = ML_LOCKED_CONTESTED;
    for (int i = 0; i < ATTEMPTS && failure == ML_LOCKED_CONTESTED; i++) {
        failure = try_open(path, magic, &descriptor, &bytes);
    }
    if (failure != ML_LOCKED_OK) {
        return failure;
    }
    if (bytes > 0) {
        file->replaced = descriptor;
        failure = make_apart(file);
    }
    else {
        file->descriptor = descriptor;
    }
    struct stat status;
    file->named = failure == ML_LOCKED_OK && fstat(file->descriptor, &status) == 0 &&
                  status.st_nlink > 0;
    return failure;
}

enum ml_locked_failure
ml_locked_file_keep(ml_locked_file *file)
{
    if (file->apart != NULL) {
        if (!lies_at(file->path, file->replaced) && access(file->path, F_OK) == 0) {
            return ML_LOCKED_CONTESTED;
        }
        ml_permission_grant(&file->permission, file->descriptor);
        if (rename(file->apart, file->path) != 0) {
            return ML_LOCKED_SYSTEM;
        }
    }
    file->kept = true;
    if (file->replaced >= 0) {
        close(file->replaced);
        file->replaced = -1;
    }
    ml_free(file->apart);
    file->apart = NULL;
    return ML_LOCKED_OK;
}

static void
cut_file(int descriptor, uint64_t bytes)
{
    struct stat status;
    int done = fstat(descriptor, &status);
    if (done == 0 && (uint64_t)status.st_size > bytes) {
        done = ftruncate(descriptor, (off_t)bytes);
    }
    /* The rest is zeros, which mean nothing. */
    (void)done;
}

/* A child forked just now may still have the descriptor, so the lock is released
 * explicitly. */
static void
unlock_and_close(int *descriptor)
{
    if (*descriptor >= 0) {
        flock(*descriptor, LOCK_UN);
        close(*descriptor);
        *descriptor = -1;
    }
}

void
ml_locked_file_close(ml_locked_file *file, uint64_t bytes)
{
    if (file->descriptor >= 0) {
        const char *at = file->apart != NULL ? file->apart : file->path;
        if (file->kept) {
            cut_file(file->descriptor, bytes);
        }
        else if (lies_at(at, file->descriptor)) {
            unlink(at);
        }
    }
    unlock_and_close(&file->descriptor);
    unlock_and_close(&file->replaced);
    ml_free(file->apart);
    file->apart = NULL;
}

void
ml_locked_file_forked(ml_locked_file *file)
{
    if (file->descriptor >= 0) {
        close(file->descriptor);
        file->descriptor = -1;
    }
    if (file->replaced >= 0) {
        close(file->replaced);
        file->replaced = -1;
    }
}

bool
ml_locked_file_is_whole(const ml_locked_file *file, uint64_t bytes)
{
    struct stat status;
    return fstat(file->descriptor, &status) == 0 && (uint64_t)status.st_size >= bytes &&
           (status.st_nlink > 0 || !file->named);
}
