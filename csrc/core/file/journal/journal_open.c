/* Opens and closes a journal's file.  See journal.h. */
#define _GNU_SOURCE 1 /* pthread_condattr_setclock */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "file/journal/journal_parts.h"

/* A larger distance from the kernel's clock means that it is no clock. */
#define SANE_NS 1000000000u

/* ---- The header ---- */

void
ml_journal_place(ml_journal *journal, ml_process_place place)
{
    ml_mlab_header *header = journal->header;
    atomic_store(&header->rank, place.rank);
    atomic_store(&header->local_rank, place.local_rank);
    /* Last, so that a reader of it sees the others. */
    atomic_store(&header->world_size, place.world_size);
}

/* SOURCE's START on the kernel's clock since boot; 0: the source has no clock, such as
 * a script. */
static uint64_t
boot_of_start(const ml_source *source, uint64_t start)
{
    ml_process process;
    ml_process_here(&process, (ml_process_place){0}, source);
    uint64_t since = process.unix_ns - start;
    bool sane = process.unix_ns >= start ? since < SANE_NS : 0 - since < SANE_NS;
    return sane ? process.boot_ns - since : 0;
}

static void
write_header(ml_journal *journal, const ml_journal_options *options)
{
    ml_mlab_header *header = journal->header;
    ml_process process;
    ml_process_here(&process, options->place, NULL);
    memcpy(header->magic, ML_MLAB_MAGIC, sizeof(header->magic));
    header->version = ML_MLAB_VERSION;
    header->byte_order = ML_MLAB_BYTE_ORDER;
    header->required = ML_MLAB_STATES | (options->uses != 0 ? ML_MLAB_USES : 0) |
                       (options->kept_steps != 0 ? ML_MLAB_TRIMS : 0);
    header->optional = options->uses > 1 ? ML_MLAB_USES_SAMPLED : 0;
    header->chunk_bytes = journal->file.chunks.chunk_bytes;
    header->keys = options->keys;
    header->start_time = process.unix_ns;
    header->pid = process.pid;
    strncpy(header->source, journal->source->name, sizeof(header->source) - 1);
    memcpy(header->host, process.host, sizeof(header->host));
    header->ordered = journal->source->ordered != 0;
    header->context = (uint8_t)(1 + options->wanted.context);
    header->native = options->wanted.native;
    header->checksum = ml_crc32c(0, header, offsetof(ml_mlab_header, checksum));
    header->boot_ns = boot_of_start(journal->source, process.unix_ns);
    memcpy(header->boot, process.boot, sizeof(header->boot));
    ml_journal_place(journal, process.place);
    atomic_store(&header->state, ML_MLAB_OPEN);
}

/* ---- Opening and closing ---- */

static void
discard(ml_journal *journal)
{
    ml_region_fini(&journal->defined);
    ml_region_fini(&journal->marks);
    pthread_cond_destroy(&journal->wake);
    pthread_cond_destroy(&journal->refilled);
    pthread_mutex_destroy(&journal->mutex);
    if (!journal->forked) {
        /* In a child it may be half changed by the thread, which is the parent's. */
        ml_trimmer_free(journal->trimmer);
    }
    ml_free(journal->path);
    ml_free(journal);
}

/* If lanes are threads, a block may end on another lane than it began. */
static int
marks_init(ml_journal *journal)
{
    if (!journal->source->ordered) {
        return 0;
    }
    size_t bytes = ML_MLAB_LANES * ML_MARK_BYTES;
    int result = ml_region_init(&journal->marks, bytes, bytes);
    for (size_t i = 0; i < ML_MLAB_LANES && result == 0; i++) {
        uint64_t *at = (uint64_t *)journal->marks.base + (i << (ML_MARK_BITS + 1));
        journal->lanes[i].marks = (ml_journal_marks){
            .blocks = (_Atomic uint64_t *)at,
            .owners = at + (UINT64_C(1) << ML_MARK_BITS),
        };
    }
    return result;
}

static ml_journal *
make(const ml_source *source, const ml_stacks *stacks,
     const ml_journal_options *options)
{
    ml_journal *journal = ml_alloc_zeroed(1, sizeof(*journal));
    size_t length = strlen(options->path) + 1;
    char *path = ml_alloc(length);
    if (journal == NULL || path == NULL) {
        ml_free(journal);
        ml_free(path);
        return NULL;
    }
    memcpy(path, options->path, length);
    journal->path = path;
    journal->source = source;
    journal->stacks = stacks;
    journal->device = options->device;
    journal->warn = options->warn;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&journal->wake, &monotonic);
    pthread_cond_init(&journal->refilled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&journal->mutex, NULL);
    if (options->kept_steps != 0) {
        journal->trimmer = ml_trimmer_new(options->kept_steps);
    }
    if (ml_journal_define_init(journal) < 0 || marks_init(journal) < 0 ||
        (options->kept_steps != 0 && journal->trimmer == NULL)) {
        discard(journal);
        return NULL;
    }
    return journal;
}

/* File systems report unsupported mappings differently. */
static bool
maps_no_files(int errnum)
{
    return errnum == ENODEV || errnum == EINVAL || errnum == EOPNOTSUPP;
}

/* The file exists and is empty: the thread fills it. */
static int
begin_file(ml_journal *journal, char *problem, size_t problem_bytes)
{
    int result = ml_journal_thread_start(journal);
    if (result < 0) {
        snprintf(problem, problem_bytes,
                 "cannot record to %s: no thread can be started", journal->path);
        return result;
    }
    pthread_mutex_lock(&journal->mutex);
    while (!journal->opened) {
        pthread_cond_wait(&journal->refilled, &journal->mutex);
    }
    result = journal->error;
    pthread_mutex_unlock(&journal->mutex);
    if (result < 0) {
        ml_journal_thread_stop(journal);
        snprintf(problem, problem_bytes, "cannot record to %s: %s", journal->path,
                 maps_no_files(journal->errnum)
                     ? "its file system cannot map files into memory; choose a file on "
                       "another, such as a local disk"
                     : strerror(journal->errnum));
        return result;
    }
    return 0;
}

int
ml_journal_open(ml_journal **out, const ml_source *source, const ml_stacks *stacks,
                const ml_journal_options *options, char *problem, size_t problem_bytes)
{
    const uint64_t least = options->kept_steps != 0
                               ? ML_JOURNAL_TRIM_LEAST
                               : (ML_JOURNAL_READY_LEAST + 1) * ML_JOURNAL_CHUNK_BYTES;
    if (options->kept_steps != 0 && !source->ordered) {
        snprintf(
            problem, problem_bytes,
            "cannot keep the last part of a recording of '%s', whose threads' events "
            "have no common order; leave out keep_last",
            source->name);
        return ML_EUNSUPPORTED;
    }
    if (options->limit_bytes < least) {
        snprintf(problem, problem_bytes,
                 "a file of %llu bytes is too small to record to; allow at least %llu",
                 (unsigned long long)options->limit_bytes, (unsigned long long)least);
        return ML_EINVALID;
    }
    ml_journal *journal = make(source, stacks, options);
    if (journal == NULL) {
        snprintf(problem, problem_bytes, "%s", ml_strerror(ML_ENOMEM));
        return ML_ENOMEM;
    }
    int result =
        ml_journal_file_open(&journal->file, journal->path, ML_JOURNAL_CHUNK_BYTES,
                             options->limit_bytes, problem, problem_bytes);
    if (result == 0) {
        journal->header = ml_mapping_at(&journal->file.chunks, 0);
        result = begin_file(journal, problem, problem_bytes);
    }
    if (result < 0) {
        ml_journal_file_close(&journal->file, 0);
        discard(journal);
        return result;
    }
    write_header(journal, options);
    ml_journal_control_begin(journal);
    *out = journal;
    return 0;
}

int
ml_journal_keep(ml_journal *journal, char *problem, size_t problem_bytes)
{
    return ml_journal_file_keep(&journal->file, problem, problem_bytes);
}

/* Bytes of the file without unused chunks at its end. */
static uint64_t
used_bytes(const ml_journal *journal)
{
    uint64_t used = journal->file.bytes;
    bool found = true;
    while (found) {
        found = false;
        for (unsigned i = 1; i < ML_JOURNAL_SLOTS && !found; i++) {
            found = atomic_load(&journal->slots[i]) == ML_SLOT_READY &&
                    journal->offsets[i] + journal->file.chunks.chunk_bytes == used;
        }
        used -= found ? journal->file.chunks.chunk_bytes : 0;
    }
    return used;
}

void
ml_journal_close(ml_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    if (!journal->forked) {
        ml_journal_thread_stop(journal);
        atomic_store(&journal->header->state, ML_MLAB_ENDED);
        ml_journal_file_close(&journal->file, used_bytes(journal));
    }
    discard(journal);
}

void
ml_journal_forked(ml_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    journal->forked = true;
    /* The waiting thread is the parent's: destroying them would wait for it. */
    pthread_cond_init(&journal->wake, NULL);
    pthread_cond_init(&journal->refilled, NULL);
    pthread_mutex_init(&journal->mutex, NULL);
    ml_journal_file_forked(&journal->file);
}
