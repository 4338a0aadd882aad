/* A file that is followed while it grows: each look equals the whole file read then. */
#define _POSIX_C_SOURCE 200809L /* mkstemp, pwrite, ftruncate */

#include "analysis/follow/follower.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "budget.h"
#include "mlab_samples.h"
#include "test.h"
#include "plain_events.h"

static sample file;
static char path[] = "/tmp/memlab-live-XXXXXX";
static int descriptor;
static ml_follower *live;
static ml_follower_news news;
static ml_recording *recording;
static ml_mlab_info info;
static ml_read_error failure;

/* The file on the disk becomes the sample's first LENGTH bytes. */
static void
store(const sample *of, size_t length)
{
    CHECK_INT(ftruncate(descriptor, (off_t)length), 0);
    CHECK(pwrite(descriptor, of->bytes, length, 0) == (ssize_t)length);
}

static void
forget(void)
{
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    recording = NULL;
}

static void
close_live(void)
{
    forget();
    ml_follower_close(live);
    live = NULL;
}

static int
look(void)
{
    forget();
    failure = (ml_read_error){0};
    int result = ml_follower_poll(live, UINT64_MAX, &news, &failure);
    return result < 0 ? result
                      : ml_follower_recording(live, &recording, &info, &failure);
}

/* What LOOK answered is what the sample says. */
static void
check_same(sample *of)
{
    ml_recording *whole = NULL;
    ml_mlab_info about = {0};
    ml_mlab_input input = {.context = of, .bytes = of->length, .read = read_bytes};
    CHECK_INT(ml_mlab_read(&input, &whole, &about, &failure), 0);
    CHECK_UINT(recording->device_count, whole->device_count);
    for (size_t d = 0; d < whole->device_count; d++) {
        const ml_device_trace *a = &recording->devices[d];
        const ml_device_trace *b = &whole->devices[d];
        CHECK_UINT(a->event_count, b->event_count);
        CHECK(b->event_count == 0 || memcmp(plain_events(a), plain_events(b),
                                            b->event_count * sizeof(ml_event)) == 0);
        CHECK_UINT(a->dropped_events, b->dropped_events);
        CHECK_UINT(a->tag_count, b->tag_count);
        CHECK_UINT(a->block_count, b->block_count);
        CHECK(memcmp(&a->peak, &b->peak, sizeof(a->peak)) == 0);
    }
    CHECK_UINT(info.damaged_chunks, about.damaged_chunks);
    CHECK_UINT(info.lost_records, about.lost_records);
    CHECK_UINT(info.unread_records, about.unread_records);
    CHECK_UINT(info.gap_count, about.gap_count);
    ml_recording_free(whole);
    ml_mlab_info_fini(&about);
}

static void
open_live(size_t kept)
{
    CHECK_INT(ml_follower_open(&live, path, kept, &failure), 0);
}

static void
test_a_file_that_grows(void)
{
    begin(&file);
    store(&file, file.length);
    open_live(ML_FOLLOWER_EVENTS);
    CHECK_INT(look(), 0);
    CHECK_UINT(news.events, 0);
    ml_chunk_writer control = add_chunk(&file, ML_MLAB_CONTROL, 0, 0, 0);
    add_start(&control, 0);
    uint64_t events = 0;
    for (uint64_t index = 0; index < 3; index++) {
        ml_chunk_writer chunk = add_chunk(&file, ML_MLAB_EVENTS, 0, index, events);
        add_node(&chunk, 1, 0, 100);
        add_node(&chunk, 2, 1, 200);
        for (unsigned i = 0; i < 4; i++) {
            add_event(&chunk, events++);
            atomic_store(&header_of(&file)->lanes[0].events, events);
            store(&file, file.length);
            CHECK_INT(look(), 0);
            CHECK_UINT(news.events, events);
            check_same(&file);
        }
    }
    CHECK_UINT(recording->devices[0].peak.allocated, 12 << 20);
    CHECK(!news.more && !news.cut);
    close_live();
}

/* A lane's chunk may come in a piece before that of an earlier one, which was ready. */
static void
test_pieces_that_fill_later(void)
{
    build(&file);
    uint8_t kept[2 * CHUNK];
    memcpy(kept, chunk_at(&file, 2), sizeof(kept));
    memset(chunk_at(&file, 2), 0, sizeof(kept));
    store(&file, file.length);
    open_live(ML_FOLLOWER_EVENTS);
    CHECK_INT(look(), 0);
    CHECK_UINT(news.events, 2);
    /* Pieces change places: the second chunk of the lane lies first. */
    memcpy(chunk_at(&file, 3), kept, CHUNK);
    memcpy(chunk_at(&file, 2), kept + CHUNK, CHUNK);
    store(&file, file.length);
    CHECK_INT(look(), 0);
    CHECK_UINT(news.events, 8);
    check_same(&file);
    close_live();
}

static void
test_what_is_damaged_is_left_out(void)
{
    build(&file);
    store(&file, file.length);
    open_live(ML_FOLLOWER_EVENTS);
    CHECK_INT(look(), 0);
    check_same(&file);
    /* More of the last chunk of device 0, with a sum that is wrong. */
    ml_chunk *chunk = chunk_at(&file, 3);
    uint64_t commit = atomic_load(&chunk->commit);
    atomic_store(&chunk->commit, commit + 8);
    store(&file, file.length);
    CHECK_INT(look(), 0);
    CHECK_UINT(info.damaged_chunks, 1);
    CHECK_UINT(recording->devices[0].event_count, 6);
    CHECK_INT(look(), 0);
    CHECK_UINT(info.damaged_chunks, 1);
    close_live();
    /* A chunk that is missing between two others. */
    build(&file);
    memset(chunk_at(&file, 2), 0, CHUNK);
    store(&file, file.length);
    open_live(ML_FOLLOWER_EVENTS);
    CHECK_INT(look(), 0);
    CHECK_UINT(recording->devices[0].dropped_events, 3);
    check_same(&file);
    close_live();
}

static void
test_a_file_that_is_cut(void)
{
    build(&file);
    store(&file, file.length);
    open_live(ML_FOLLOWER_EVENTS);
    CHECK_INT(look(), 0);
    store(&file, CHUNK / 2);
    CHECK_INT(look(), 0);
    CHECK(news.cut);
    CHECK_UINT(recording->devices[0].event_count, 6);
    close_live();
}

static void
test_old_events_make_room(void)
{
    build(&file);
    store(&file, file.length);
    open_live(4);
    CHECK_INT(look(), 0);
    CHECK(news.gone >= 3);
    CHECK_UINT(news.events, 8);
    CHECK_UINT(recording->devices[0].event_count + recording->devices[1].event_count,
               8 - news.gone);
    CHECK_UINT(recording->devices[0].peak.allocated, 6 << 20);
    uint64_t blocks = 0;
    for (size_t i = 0; i < recording->devices[0].block_count; i++) {
        blocks += recording->devices[0].blocks[i].state == ML_BLOCK_ALLOCATED;
    }
    CHECK_UINT(blocks, 6);
    CHECK(recording->devices[0].prior_block_count > 0);
    const ml_follower_history *history = ml_follower_get_history(live, 0);
    CHECK_UINT(history->most[history->count - 1], 6 << 20);
    CHECK(ml_follower_get_history(live, ML_DEVICE_MAX) == NULL);
    close_live();
}

static void
test_what_is_refused(void)
{
    CHECK_INT(ml_follower_open(&live, "/nowhere/none.mlab", 4, &failure), ML_EIO);
    begin(&file);
    file.bytes[0] = 'x';
    store(&file, file.length);
    CHECK_INT(ml_follower_open(&live, path, 4, &failure), ML_EFORMAT);
}

static void
test_running_out_of_memory(void)
{
    int result = ML_ENOMEM;
    long budget = 0;
    build(&file);
    store(&file, file.length);
    for (; result == ML_ENOMEM && budget < 5000; budget++) {
        budget_begin(budget);
        failure = (ml_read_error){0};
        result = ml_follower_open(&live, path, 4, &failure);
        if (result == 0) {
            result = look();
            /* What is not whole answers nothing more. */
            CHECK(result == 0 || news.events == 0 || look() == ML_ENOMEM);
        }
        close_live();
        CHECK_INT(budget_alive, 0);
        budget_end();
        CHECK(result == 0 || failure.code == ML_ENOMEM);
    }
    CHECK_INT(result, 0);
    CHECK(budget > 50);
}

int
main(void)
{
    descriptor = mkstemp(path);
    if (descriptor < 0) {
        return 1;
    }
    RUN(test_a_file_that_grows);
    RUN(test_pieces_that_fill_later);
    RUN(test_what_is_damaged_is_left_out);
    RUN(test_a_file_that_is_cut);
    RUN(test_old_events_make_room);
    RUN(test_what_is_refused);
    RUN(test_running_out_of_memory);
    close(descriptor);
    unlink(path);
    return TEST_RESULT();
}
