/* The allocated bytes of a followed recording over its whole time, in few columns.  See
 * follower.h. */
#include <string.h>

#include "analysis/follow/follower_parts.h"
#include "ledger/replay/replay.h"

/* Merges each two columns into one of double length. */
static void
fold(ml_follower_history *history)
{
    for (size_t i = 0; i < ML_FOLLOWER_COLUMNS / 2; i++) {
        uint64_t a = history->most[2 * i];
        uint64_t b = history->most[2 * i + 1];
        history->most[i] = a < b ? b : a;
    }
    memset(&history->most[ML_FOLLOWER_COLUMNS / 2], 0,
           sizeof(history->most) - sizeof(history->most) / 2);
    history->count = (history->count + 1) / 2;
    history->column_ns *= 2;
}

static void
raise(ml_follower_history *history, size_t column, uint64_t bytes)
{
    if (history->most[column] < bytes) {
        history->most[column] = bytes;
    }
}

/* The column of TIME, made if needed. */
static size_t
column_of(ml_follower_history *history, uint64_t time)
{
    uint64_t since = time > history->start ? time - history->start : 0;
    while (since / history->column_ns >= ML_FOLLOWER_COLUMNS) {
        fold(history);
    }
    size_t column = (size_t)(since / history->column_ns);
    history->count = column + 1 > history->count ? column + 1 : history->count;
    return column;
}

static int
note_device(ml_follower_history *history, const ml_recording *recording,
            unsigned device)
{
    ml_replay *replay;
    int result = ml_replay_new(recording, device, &replay);
    if (result < 0) {
        return result;
    }
    uint64_t level = ml_replay_totals(replay)->allocated;
    const ml_event *event = ml_replay_next(replay);
    uint64_t before = event != NULL ? event->time : 0;
    if (event != NULL && history->column_ns == 0) {
        *history = (ml_follower_history){.start = event->time, .column_ns = 1};
    }
    for (; event != NULL; event = ml_replay_next(replay)) {
        size_t to = column_of(history, event->time);
        for (size_t i = column_of(history, before); i <= to; i++) {
            raise(history, i, level);
        }
        before = event->time;
        level = ml_replay_totals(replay)->allocated;
        raise(history, to, level);
    }
    ml_replay_free(replay);
    return 0;
}

/* Repeated values do no harm: the maximum stays. */
int
follower_note_history(ml_follower *live, const ml_recording *recording)
{
    int result = 0;
    for (unsigned d = 0; d < recording->device_count && result == 0; d++) {
        result = note_device(&live->histories[d], recording, d);
    }
    return result;
}

const ml_follower_history *
ml_follower_get_history(const ml_follower *live, unsigned device)
{
    return device < ML_DEVICE_MAX ? &live->histories[device] : NULL;
}
