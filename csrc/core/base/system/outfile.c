/* Writes output files that appear whole or not at all: write beside, sync, rename,
 * sync. */
#define _DEFAULT_SOURCE /* getentropy, renameat */

#include "base/system/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

#include "base/base.h"
#include "base/system/permission.h"

/* Linux's limit of one write. */
#define WRITE_BYTES ((size_t)1 << 30)
#define ATTEMPTS 16

struct ml_outfile {
    int folder; /* descriptor of the folder, which may be moved meanwhile */
    int file;   /* descriptor of the temporary file */
    ml_outfile_error error;
    ml_permission permission;
    char *name;         /* owned: last part of the path */
    char temporary[48]; /* in the folder */
};

static int
system_open(const char *path, int flags)
{
    return open(path, flags);
}

static int
system_create(int folder, const char *name, int flags, mode_t mode)
{
    return openat(folder, name, flags, mode);
}

const ml_outfile_calls ml_outfile_system_calls = {.open = system_open,
                                                  .create = system_create,
                                                  .write = write,
                                                  .fsync = fsync,
                                                  .close = close,
                                                  .rename = renameat,
                                                  .unlink = unlinkat};

static const ml_outfile_calls *calls = &ml_outfile_system_calls;

void
ml_set_outfile_calls(const ml_outfile_calls *replacement)
{
    calls = replacement != NULL ? replacement : &ml_outfile_system_calls;
}

/* Remembers the first failure; reads errno. */
static int
fail(ml_outfile_error *error, const char *step)
{
    if (error->step == NULL) {
        error->errnum = errno;
        error->step = step;
    }
    return ML_EIO;
}

static int
fail_with(ml_outfile_error *error, int errnum, const char *step)
{
    errno = errnum;
    return fail(error, step);
}

/* Only a plain file may be replaced: a rename onto /dev/null would remove the device. */
static int
check_target(const char *path, ml_outfile_error *error)
{
    struct stat status;
    if (stat(path, &status) != 0 || S_ISREG(status.st_mode)) {
        return 0;
    }
    return fail_with(error, S_ISDIR(status.st_mode) ? EISDIR : EINVAL, "replace");
}

static int
open_folder(ml_outfile *file, const char *path, size_t length)
{
    char *folder = ml_alloc(length + 2);
    if (folder == NULL) {
        fail_with(&file->error, ENOMEM, "open");
        return ML_ENOMEM;
    }
    memcpy(folder, path, length);
    if (length == 0) {
        folder[length++] = '.';
    }
    folder[length] = '\0';
    do {
        file->folder = calls->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (file->folder < 0 && errno == EINTR);
    int errnum = errno;
    ml_free(folder);
    return file->folder >= 0 ? 0 : fail_with(&file->error, errnum, "open the folder");
}

static int
create_temporary(ml_outfile *file, const char *ending)
{
    mode_t mode = ml_permission_to_make(&file->permission);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        unsigned long long random;
        if (getentropy(&random, sizeof(random)) != 0) {
            return fail(&file->error, "open");
        }
        snprintf(file->temporary, sizeof(file->temporary), ".memlab-%016llx%s", random,
                 ending);
        do {
            file->file = calls->create(
                file->folder, file->temporary,
                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        } while (file->file < 0 && errno == EINTR);
        if (file->file >= 0) {
            ml_permission_begin(&file->permission, file->file, file->folder,
                                file->name);
            return 0;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    file->temporary[0] = '\0';
    return fail(&file->error, "open");
}

static int
open_parts(ml_outfile *file, const char *path, const char *ending)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t bytes = strlen(name) + 1;
    if (bytes == 1) {
        return fail_with(&file->error, slash != NULL ? EISDIR : ENOENT, "open");
    }
    file->name = ml_alloc(bytes);
    if (file->name == NULL) {
        fail_with(&file->error, ENOMEM, "open");
        return ML_ENOMEM;
    }
    memcpy(file->name, name, bytes);
    int error = check_target(path, &file->error);
    if (error == 0) {
        /* The slash stays, for the file whose folder is "/". */
        error = open_folder(file, path, (size_t)(name - path));
    }
    if (error != 0) {
        return error;
    }
    file->permission = ml_permission_of(file->folder, file->name);
    return create_temporary(file, ending);
}

/* Removes the temporary file, if there is one, and FILE itself. */
static void
discard(ml_outfile *file)
{
    if (file->file >= 0) {
        calls->close(file->file);
    }
    if (file->temporary[0] != '\0') {
        calls->unlink(file->folder, file->temporary, 0);
    }
    if (file->folder >= 0) {
        calls->close(file->folder);
    }
    ml_free(file->name);
    ml_free(file);
}

int
ml_outfile_open(ml_outfile **out, const char *path, const char *ending,
                ml_outfile_error *error)
{
    ml_outfile *file = ml_alloc_zeroed(1, sizeof(*file));
    if (file == NULL) {
        *error = (ml_outfile_error){ENOMEM, "open"};
        return ML_ENOMEM;
    }
    file->folder = -1;
    file->file = -1;
    int result = open_parts(file, path, ending);
    if (result != 0) {
        *error = file->error;
        discard(file);
        return result;
    }
    *out = file;
    return 0;
}

const char *
ml_outfile_temporary(const ml_outfile *file)
{
    return file->temporary;
}

int
ml_outfile_take(ml_outfile *file)
{
    int taken;
    do {
        taken = calls->create(file->folder, file->temporary,
                              O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    } while (taken < 0 && errno == EINTR);
    if (taken < 0) {
        return fail(&file->error, "open");
    }
    calls->close(file->file);
    file->file = taken;
    if (file->permission.replaces) {
        ml_permission_begin(&file->permission, taken, file->folder, file->name);
    }
    return 0;
}

int
ml_outfile_write(ml_outfile *file, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length != 0 && file->error.step == NULL) {
        ssize_t written =
            calls->write(file->file, at, length < WRITE_BYTES ? length : WRITE_BYTES);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            fail(&file->error, "write");
        }
        else if (written == 0) {
            /* Regular files do not do this; without the check, the loop would never
             * end. */
            fail_with(&file->error, EIO, "write");
        }
        else {
            at += written;
            length -= (size_t)written;
        }
    }
    return file->error.step == NULL ? 0 : ML_EIO;
}

/* Some file systems cannot sync and say so; that is no failure. */
static int
sync_descriptor(ml_outfile *file, int descriptor, const char *step)
{
    int result;
    do {
        result = calls->fsync(descriptor);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno != EINVAL && errno != ENOTSUP && errno != ENOSYS) {
        return fail(&file->error, step);
    }
    return 0;
}

static int
commit_parts(ml_outfile *file)
{
    if (file->error.step != NULL) {
        return ML_EIO;
    }
    ml_permission_grant(&file->permission, file->file);
    int error = sync_descriptor(file, file->file, "fsync");
    if (error != 0) {
        return error;
    }
    int descriptor = file->file;
    file->file = -1;
    /* After EINTR the descriptor is closed all the same on Linux, and must not be
     * closed again. */
    if (calls->close(descriptor) != 0 && errno != EINTR) {
        return fail(&file->error, "close");
    }
    if (calls->rename(file->folder, file->temporary, file->folder, file->name) != 0) {
        return fail(&file->error, "rename");
    }
    file->temporary[0] = '\0';
    return sync_descriptor(file, file->folder, "fsync of the folder");
}

int
ml_outfile_commit(ml_outfile *file, ml_outfile_error *error)
{
    int result = commit_parts(file);
    if (result != 0) {
        *error = file->error;
    }
    discard(file);
    return result;
}

void
ml_outfile_abort(ml_outfile *file, ml_outfile_error *error)
{
    if (file == NULL) {
        return;
    }
    if (file->error.step != NULL) {
        *error = file->error;
    }
    discard(file);
}
