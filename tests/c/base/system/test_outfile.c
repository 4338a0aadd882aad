#define _DEFAULT_SOURCE /* mkdtemp, symlink, setrlimit */

#include "base/system/outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "budget.h"
#include "test.h"

/* A fresh folder for each test, and the file in it. */
static char folder[64];
static char path[80];

static void
make_folder(void)
{
    strcpy(folder, "/tmp/memlab-outfile-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        exit(1);
    }
    snprintf(path, sizeof(path), "%s/file", folder);
}

static void
remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void
put_file(const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

/* What the file holds, "-" if there is none. */
static const char *
text_of_file(void)
{
    static char text[100];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return "-";
    }
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

static int
entries(void)
{
    DIR *list = opendir(folder);
    int count = -2; /* "." and ".." */
    while (list != NULL && readdir(list) != NULL) {
        count++;
    }
    if (list != NULL) {
        closedir(list);
    }
    return count;
}

static int
open_descriptors(void)
{
    int count = 0;
    for (int i = 0; i < 200; i++) {
        count += fcntl(i, F_GETFD) != -1;
    }
    return count;
}

static int
write_file(const char *at, const char *text, ml_outfile_error *error)
{
    ml_outfile *file = NULL;
    *error = (ml_outfile_error){0};
    int result = ml_outfile_open(&file, at, "", error);
    if (result == 0) {
        result = ml_outfile_write(file, text, strlen(text));
        /* A second write after a failure must fail too. */
        result = ml_outfile_write(file, "", 0) != result ? 1 : result;
        if (result == 0) {
            result = ml_outfile_commit(file, error);
        }
        else {
            ml_outfile_abort(file, error);
        }
    }
    return result;
}

static void
test_new_file(void)
{
    make_folder();
    ml_outfile_error error;
    CHECK_INT(write_file(path, "hello", &error), 0);
    CHECK_STR(text_of_file(), "hello");
    CHECK_INT(entries(), 1);
    remove_folder();
}

static int
mode_of(const char *at)
{
    struct stat status;
    return stat(at, &status) == 0 ? (int)(status.st_mode & 07777) : -1;
}

static void
test_a_new_file_follows_the_umask(void)
{
    static const mode_t masks[] = {0, 002, 022, 027, 077, 0277, 0777};
    make_folder();
    mode_t before = umask(0);
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        umask(masks[i]);
        ml_outfile_error error;
        CHECK_INT(write_file(path, "hello", &error), 0);
        CHECK_INT(mode_of(path), 0666 & ~masks[i]);
        CHECK_INT(umask(masks[i]), masks[i]);
        unlink(path);
    }
    umask(before);
    remove_folder();
}

static void
test_an_old_file_keeps_its_mode(void)
{
    static const mode_t modes[] = {0600, 0640, 0664, 0666, 0755, 0400, 0};
    make_folder();
    mode_t before = umask(0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        umask(i % 2 == 0 ? 0 : 077);
        put_file("old");
        CHECK_INT(chmod(path, modes[i]), 0);
        ml_outfile_error error;
        CHECK_INT(write_file(path, "new", &error), 0);
        CHECK_INT(mode_of(path), modes[i]);
        unlink(path);
    }
    umask(before);
    remove_folder();
}

/* A link is replaced: what it names says nothing of who may read the file. */
static void
test_a_link_grants_nothing(void)
{
    make_folder();
    put_file("victim");
    CHECK_INT(chmod(path, 0666), 0);
    char link[100];
    snprintf(link, sizeof(link), "%s/link", folder);
    CHECK_INT(symlink(path, link), 0);
    mode_t before = umask(027);
    ml_outfile_error error;
    CHECK_INT(write_file(link, "new", &error), 0);
    umask(before);
    CHECK_INT(mode_of(link), 0640);
    CHECK_INT(mode_of(path), 0666);
    unlink(link);
    remove_folder();
}

/* While it is written nobody else can read it, nor could an instant before. */
static mode_t made; /* the mode it was made by */

static int
noting_create(int in, const char *name, int flags, mode_t mode)
{
    made = mode;
    return ml_outfile_system_calls.create(in, name, flags, mode);
}

static void
test_nobody_else_reads_what_is_being_written(void)
{
    make_folder();
    ml_outfile_calls noting = ml_outfile_system_calls;
    noting.create = noting_create;
    ml_set_outfile_calls(&noting);
    mode_t before = umask(0);
    for (int old = 0; old < 2; old++) {
        if (old == 1) {
            put_file("old");
            CHECK_INT(chmod(path, 0640), 0);
        }
        ml_outfile *file = NULL;
        ml_outfile_error error = {0};
        CHECK_INT(ml_outfile_open(&file, path, ".gz", &error), 0);
        CHECK_INT(made, old == 1 ? 0600 : 0666);
        char temporary[120];
        snprintf(temporary, sizeof(temporary), "%s/%s", folder,
                 ml_outfile_temporary(file));
        CHECK_STR(temporary + strlen(temporary) - 3, ".gz");
        CHECK_INT(mode_of(temporary), 0600);
        CHECK_INT(ml_outfile_commit(file, &error), 0);
        CHECK_INT(mode_of(path), old == 1 ? 0640 : 0666);
        unlink(path);
    }
    umask(before);
    ml_set_outfile_calls(NULL);
    remove_folder();
}

/* Who writes by name may put another file there, which is then the one. */
static void
test_written_by_name(void)
{
    make_folder();
    mode_t before = umask(022);
    for (int old = 0; old < 2; old++) {
        for (int other = 0; other < 3; other++) {
            unlink(path);
            if (old == 1) {
                put_file("old");
                CHECK_INT(chmod(path, 0664), 0);
            }
            ml_outfile *file = NULL;
            ml_outfile_error error = {0};
            CHECK_INT(ml_outfile_open(&file, path, "", &error), 0);
            char temporary[120];
            snprintf(temporary, sizeof(temporary), "%s/%s", folder,
                     ml_outfile_temporary(file));
            if (other > 0) {
                unlink(temporary);
            }
            if (other < 2) {
                FILE *there = fopen(temporary, "w");
                CHECK(there != NULL && fputs("by name", there) >= 0);
                CHECK_INT(fclose(there), 0);
            }
            CHECK_INT(ml_outfile_take(file), other < 2 ? 0 : ML_EIO);
            CHECK_INT(ml_outfile_commit(file, &error), other < 2 ? 0 : ML_EIO);
            if (other < 2) {
                CHECK_STR(text_of_file(), "by name");
                CHECK_INT(mode_of(path), old == 1 ? 0664 : 0644);
            }
            else {
                CHECK_INT(error.errnum, ENOENT);
                CHECK_STR(text_of_file(), old == 1 ? "old" : "-");
            }
            CHECK_INT(entries(), old == 1 || other < 2);
        }
    }
    umask(before);
    remove_folder();
}

static void
test_old_file_stays_until_commit(void)
{
    make_folder();
    put_file("old");
    ml_outfile *file = NULL;
    ml_outfile_error error = {0};
    CHECK_INT(ml_outfile_open(&file, path, "", &error), 0);
    CHECK_INT(ml_outfile_write(file, "new", 3), 0);
    CHECK_STR(text_of_file(), "old");
    CHECK_INT(entries(), 2);
    CHECK_INT(ml_outfile_commit(file, &error), 0);
    CHECK_STR(text_of_file(), "new");
    CHECK_INT(entries(), 1);
    remove_folder();
}

static void
test_abort(void)
{
    make_folder();
    put_file("old");
    ml_outfile *file = NULL;
    ml_outfile_error error = {0};
    CHECK_INT(ml_outfile_open(&file, path, "", &error), 0);
    CHECK_INT(ml_outfile_write(file, "new", 3), 0);
    ml_outfile_abort(file, &error);
    ml_outfile_abort(NULL, &error);
    CHECK(error.step == NULL);
    CHECK_STR(text_of_file(), "old");
    CHECK_INT(entries(), 1);
    remove_folder();
}

static void
test_relative_path(void)
{
    make_folder();
    char before[4096];
    CHECK(getcwd(before, sizeof(before)) != NULL);
    CHECK_INT(chdir(folder), 0);
    ml_outfile_error error;
    int result = write_file("file", "here", &error);
    int back = chdir(before);
    CHECK_INT(result, 0);
    CHECK_INT(back, 0);
    CHECK_STR(text_of_file(), "here");
    remove_folder();
}

static void
test_links_are_not_followed(void)
{
    make_folder();
    put_file("victim");
    char link[100];
    snprintf(link, sizeof(link), "%s/link", folder);
    CHECK_INT(symlink(path, link), 0);
    ml_outfile_error error;
    CHECK_INT(write_file(link, "new", &error), 0);
    CHECK_STR(text_of_file(), "victim");
    struct stat status;
    CHECK_INT(lstat(link, &status), 0);
    CHECK(S_ISREG(status.st_mode));
    unlink(link);
    remove_folder();
}

static void
test_only_files_are_replaced(void)
{
    make_folder();
    ml_outfile_error error;
    CHECK_INT(write_file(folder, "x", &error), ML_EIO);
    CHECK_INT(error.errnum, EISDIR);
    CHECK_INT(write_file("/dev/null", "x", &error), ML_EIO);
    CHECK_INT(error.errnum, EINVAL);
    CHECK_STR(error.step, "replace");
    CHECK_INT(write_file("", "x", &error), ML_EIO);
    CHECK_INT(error.errnum, ENOENT);
    char below[100];
    snprintf(below, sizeof(below), "%s/none/file", folder);
    CHECK_INT(write_file(below, "x", &error), ML_EIO);
    CHECK_INT(error.errnum, ENOENT);
    CHECK_STR(error.step, "open the folder");
    snprintf(below, sizeof(below), "%s/", folder);
    CHECK_INT(write_file(below, "x", &error), ML_EIO);
    CHECK_INT(error.errnum, EISDIR);
    CHECK_INT(entries(), 0);
    remove_folder();
}

/* ---- faults at each system call ---- */

static int calls_left;  /* until the one that fails */
static int fault_errno; /* with this */
static int fault_repeats;

static bool
fault(void)
{
    if (calls_left > 0) {
        calls_left--;
        return false;
    }
    if (fault_repeats == 0) {
        return false;
    }
    fault_repeats--;
    errno = fault_errno;
    return true;
}

static int
fault_open(const char *at, int flags)
{
    return fault() ? -1 : ml_outfile_system_calls.open(at, flags);
}

static int
fault_create(int in, const char *name, int flags, mode_t mode)
{
    return fault() ? -1 : ml_outfile_system_calls.create(in, name, flags, mode);
}

static ssize_t
fault_write(int file, const void *bytes, size_t length)
{
    /* Two bytes at a time: every write is a short one. */
    return fault()
               ? -1
               : ml_outfile_system_calls.write(file, bytes, length < 2 ? length : 2);
}

static int
fault_fsync(int file)
{
    return fault() ? -1 : ml_outfile_system_calls.fsync(file);
}

static int
fault_close(int file)
{
    int result = ml_outfile_system_calls.close(file);
    return fault() ? -1 : result;
}

static int
fault_rename(int from, const char *old, int to, const char *name)
{
    return fault() ? -1 : ml_outfile_system_calls.rename(from, old, to, name);
}

static const ml_outfile_calls faulty = {.open = fault_open,
                                        .create = fault_create,
                                        .write = fault_write,
                                        .fsync = fault_fsync,
                                        .close = fault_close,
                                        .rename = fault_rename,
                                        .unlink = unlinkat};

static int
write_with_fault(int call, int errnum, int repeats, ml_outfile_error *error)
{
    calls_left = call;
    fault_errno = errnum;
    fault_repeats = repeats;
    ml_set_outfile_calls(&faulty);
    int result = write_file(path, "newer", error);
    ml_set_outfile_calls(NULL);
    return result;
}

static void
test_fault_at_each_call(void)
{
    /* Five bytes in three writes; what comes after the sync of the folder is the end. */
    static const char *const steps[] = {
        "open the folder", "open",   "write",
        "write",           "write",  "fsync",
        "close",           "rename", "fsync of the folder"};
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EFBIG, EROFS, EMFILE};
    make_folder();
    int descriptors = open_descriptors();
    for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
        for (int call = 0; call < 9; call++) {
            put_file("old");
            ml_outfile_error error;
            CHECK_INT(write_with_fault(call, errors[e], 1, &error), ML_EIO);
            CHECK_STR(error.step, steps[call]);
            CHECK_INT(error.errnum, errors[e]);
            CHECK_STR(text_of_file(), call < 8 ? "old" : "newer");
            CHECK_INT(entries(), 1);
            CHECK_INT(open_descriptors(), descriptors);
        }
        put_file("old");
        ml_outfile_error error;
        CHECK_INT(write_with_fault(9, errors[e], 1, &error), 0);
        CHECK_STR(text_of_file(), "newer");
    }
    remove_folder();
}

static void
test_interrupted_calls_are_repeated(void)
{
    make_folder();
    for (int call = 0; call < 9; call++) {
        /* A rename is not interrupted: POSIX does not list it. */
        if (call == 7) {
            continue;
        }
        put_file("old");
        ml_outfile_error error;
        int repeats = call == 6 ? 1 : 3; /* close is never repeated */
        CHECK_INT(write_with_fault(call, EINTR, repeats, &error), 0);
        CHECK_STR(text_of_file(), "newer");
    }
    remove_folder();
}

static void
test_name_taken(void)
{
    make_folder();
    ml_outfile_error error;
    CHECK_INT(write_with_fault(1, EEXIST, 3, &error), 0);
    CHECK_STR(text_of_file(), "newer");
    unlink(path);
    CHECK_INT(write_with_fault(1, EEXIST, 1000, &error), ML_EIO);
    CHECK_INT(error.errnum, EEXIST);
    CHECK_INT(entries(), 0);
    remove_folder();
}

static void
test_sync_that_is_not_offered(void)
{
    make_folder();
    ml_outfile_error error;
    CHECK_INT(write_with_fault(5, EINVAL, 1, &error), 0);
    CHECK_INT(write_with_fault(8, EINVAL, 1, &error), 0);
    CHECK_STR(text_of_file(), "newer");
    remove_folder();
}

/* The kernel's own refusal, at every byte. */
static void
test_file_size_limit(void)
{
    make_folder();
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
    put_file("old");
    static const char text[] = "0123456789";
    for (rlim_t limit = 0; limit <= 10; limit++) {
        struct rlimit small = {limit, old.rlim_max};
        ml_outfile_error error;
        CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
        int result = write_file(path, text, &error);
        CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
        CHECK_INT(result, limit < 10 ? ML_EIO : 0);
        CHECK_STR(text_of_file(), limit < 10 ? "old" : text);
        CHECK_INT(entries(), 1);
        if (limit < 10) {
            CHECK_INT(error.errnum, EFBIG);
            CHECK_STR(error.step, "write");
        }
    }
    signal(SIGXFSZ, SIG_DFL);
    remove_folder();
}

static void
test_without_memory(void)
{
    make_folder();
    put_file("old");
    for (long budget = 0;; budget++) {
        ml_outfile_error error = {0};
        budget_begin(budget);
        int result = write_file(path, "new", &error);
        budget_end();
        CHECK_INT(budget_alive, 0);
        CHECK_STR(text_of_file(), result == 0 ? "new" : "old");
        CHECK_INT(entries(), 1);
        if (result == 0) {
            CHECK_INT(budget, 3);
            break;
        }
        CHECK_INT(result, ML_ENOMEM);
        CHECK_INT(error.errnum, ENOMEM);
    }
    remove_folder();
}

int
main(void)
{
    RUN(test_new_file);
    RUN(test_a_new_file_follows_the_umask);
    RUN(test_an_old_file_keeps_its_mode);
    RUN(test_a_link_grants_nothing);
    RUN(test_nobody_else_reads_what_is_being_written);
    RUN(test_written_by_name);
    RUN(test_old_file_stays_until_commit);
    RUN(test_abort);
    RUN(test_relative_path);
    RUN(test_links_are_not_followed);
    RUN(test_only_files_are_replaced);
    RUN(test_fault_at_each_call);
    RUN(test_interrupted_calls_are_repeated);
    RUN(test_name_taken);
    RUN(test_sync_that_is_not_offered);
    RUN(test_file_size_limit);
    RUN(test_without_memory);
    return TEST_RESULT();
}
