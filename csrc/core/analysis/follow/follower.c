/* Follows a .mlab file: opens it, polls it, answers.  See follower.h. */
#include "analysis/follow/follower.h"

#include <errno.h>

#include "analysis/follow/follower_parts.h"
#include "base/system/infile.h"

/* ---- The file ---- */

static int
begin_reading(ml_follower *live, ml_read_error *error)
{
    int result = mlab_read_header(&live->input, &live->header, error);
    if (result < 0) {
        return result;
    }
    result = mlab_reader_new(&live->reader);
    if (result < 0) {
        return ml_read_fail(error, result, 0, "%s", ml_strerror(result));
    }
    live->reader->info = &live->info;
    mlab_take_header(live->reader, &live->header, live->input.bytes);
    live->scanned = live->header.chunk_bytes;
    if (live->reader->trims != 0) {
        result = mlab_read_start(live->reader, &live->input, live->header.chunk_bytes);
    }
    for (unsigned i = 0; i <= ML_MLAB_LANES && result == 0; i++) {
        live->lanes[i].next = live->reader->trim_lanes[i].chunk;
        result = mlab_begin_lane(live->reader, &live->lanes[i].state, i);
    }
    for (unsigned d = 0; d < ML_DEVICE_MAX; d++) {
        const ml_mlab_trim_lane *trim = &live->reader->trim_lanes[d];
        live->begun[d] = live->reader->starts[d].head.events;
        live->gone[d] = trim->gone;
    }
    return result < 0 ? ml_read_fail(error, result, 0, "%s", ml_strerror(result)) : 0;
}

/* The file has dropped its first part: reads it from its new start on.  The histories
 * stay. */
static int
begin_again(ml_follower *live, ml_read_error *error)
{
    mlab_reader_free(live->reader);
    live->reader = NULL;
    ml_mlab_info_fini(&live->info);
    live->info = (ml_mlab_info){0};
    for (unsigned i = 0; i <= ML_MLAB_LANES; i++) {
        ml_free(live->lanes[i].buffer);
        live->lanes[i] = (follower_lane){0};
    }
    for (unsigned d = 0; d < ML_DEVICE_MAX; d++) {
        live->prior_blocks[d].count = 0;
    }
    live->ready_count = 0;
    live->queue_count = 0;
    return begin_reading(live, error);
}

int
ml_follower_open(ml_follower **out, const char *path, size_t kept, ml_read_error *error)
{
    ml_follower *live = ml_alloc_zeroed(1, sizeof(*live));
    if (live == NULL) {
        return ml_read_fail(error, ML_ENOMEM, 0, "%s", ml_strerror(ML_ENOMEM));
    }
    live->kept_most = kept;
    live->descriptor = ml_infile_open(path);
    int result = live->descriptor < 0
                     ? ML_EIO
                     : ml_mlab_input_of(&live->input, &live->descriptor);
    if (result == 0) {
        result = begin_reading(live, error);
    }
    if (result < 0) {
        int errnum = errno;
        ml_follower_close(live);
        errno = errnum;
        return result;
    }
    *out = live;
    return 0;
}

void
ml_follower_close(ml_follower *live)
{
    if (live == NULL) {
        return;
    }
    ml_infile_close(live->descriptor);
    if (live->reader != NULL) {
        mlab_reader_free(live->reader);
    }
    ml_mlab_info_fini(&live->info);
    for (unsigned i = 0; i <= ML_MLAB_LANES; i++) {
        ml_free(live->lanes[i].buffer);
    }
    for (unsigned d = 0; d < ML_DEVICE_MAX; d++) {
        ml_free(live->prior_blocks[d].items);
    }
    ml_free(live->ready);
    ml_free(live->queue);
    ml_free(live);
}

int
ml_follower_descriptor(const ml_follower *live)
{
    return live->descriptor;
}

static uint64_t
gone(const ml_follower *live)
{
    uint64_t count = 0;
    for (unsigned d = 0; d < ML_DEVICE_MAX; d++) {
        count += live->gone[d];
    }
    return count;
}

int
ml_follower_poll(ml_follower *live, uint64_t events, ml_follower_news *news,
                 ml_read_error *error)
{
    ml_mlab_header header;
    ml_read_error ignored = {0};
    ml_mlab_input input;
    *news = (ml_follower_news){0};
    if (live->failed < 0) {
        return ml_read_fail(error, live->failed, 0, "%s", ml_strerror(live->failed));
    }
    if (ml_mlab_input_of(&input, &live->descriptor) < 0) {
        return ML_EIO;
    }
    /* The part read so far stays; the file's current contents do not belong to it. */
    news->cut = input.bytes < live->input.bytes ||
                mlab_read_header(&input, &header, &ignored) < 0 ||
                header.checksum != live->header.checksum;
    int result = 0;
    if (!news->cut) {
        live->input = input;
        /* The header from before the chunks are read: its counts cover only these. */
        live->header = header;
        bool trimmed = atomic_load(&header.trims) != live->reader->trims;
        if (trimmed && (header.required & ML_MLAB_TRIMS) != 0) {
            result = begin_again(live, error);
        }
        if (result == 0) {
            mlab_take_header(live->reader, &live->header, input.bytes);
            result = follower_read_on(live, events, &news->more, error);
        }
        live->failed = result;
    }
    news->bytes = live->input.bytes;
    news->read_bytes = live->scanned < news->bytes ? live->scanned : news->bytes;
    news->events = follower_events(live);
    news->gone = gone(live);
    return result;
}

/* ---- The answer ---- */

int
ml_follower_recording(ml_follower *live, ml_recording **out, ml_mlab_info *info,
                      ml_read_error *error)
{
    mlab_reader *reader;
    int result = live->failed < 0 ? live->failed : follower_finish(live, &reader, info);
    if (result < 0) {
        return ml_read_fail(error, result, 0, "%s", ml_strerror(result));
    }
    *out = reader->recording;
    reader->recording = NULL;
    mlab_reader_free(reader);
    return 0;
}
