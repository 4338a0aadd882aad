/* Maps of blocks in which a request runs out of memory, and what is answered. */
#ifndef ML_TEST_OOM_SAMPLES_H
#define ML_TEST_OOM_SAMPLES_H

#include <stdlib.h>

#include "analysis/answers/oom.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define BASE UINT64_C(0x7f0000000000)

/* Stream, pool and flags are those of the events to come. */
typedef struct fixture {
    sample made;
    uint64_t stream;
    uint32_t pool;
    uint8_t flags;
    ml_oom *oom;
} fixture;

static inline void
set_up(fixture *f)
{
    memset(f, 0, sizeof(*f));
    sample_begin(&f->made);
    f->flags = ML_EVENT_POOL_KNOWN;
}

static inline void
tear_down(fixture *f)
{
    ml_oom_free(f->oom);
    sample_end(&f->made);
}

static inline uint32_t
add_frame(fixture *f, uint32_t parent, const char *file, int line, const char *name,
          const char *module)
{
    return sample_call(f->made.recording, parent, file, line, name, module);
}

static inline uint32_t
user_line(fixture *f, int line)
{
    return add_frame(f, 0, "train.py", line, "step", NULL);
}

static inline ml_event *
add(fixture *f, enum ml_action action, uint64_t addr, uint64_t size)
{
    ml_event *event = sample_event(&f->made, action, addr, size, 0);
    event->stream = f->stream;
    event->pool[0] = event->pool[1] = f->pool;
    event->flags = f->flags;
    return event;
}

static inline void
add_alloc(fixture *f, uint64_t addr, uint64_t size, uint32_t stack)
{
    add(f, ML_ACTION_ALLOC, addr, size)->stack = stack;
}

static inline void
add_free(fixture *f, uint64_t addr, uint64_t size)
{
    add(f, ML_ACTION_FREE_REQUESTED, addr, size);
    add(f, ML_ACTION_FREE_COMPLETED, addr, size);
}

static inline void
add_note(fixture *f, enum ml_note_kind kind, uint64_t time, uint64_t a, uint64_t b,
         uint64_t c, uint64_t d)
{
    ml_note *note = &f->made.notes[f->made.recording->note_count++];
    *note = (ml_note){.time = time, .kind = (uint8_t)kind};
    note->values[0] = a;
    note->values[1] = b;
    note->values[2] = c;
    note->values[3] = d;
}

/* The memory at the end, which a real recording has: that after all events. */
static inline int
end_segment(void *context, const ml_segment *segment)
{
    fixture *f = context;
    f->made.segments[f->made.device.segment_count++] = *segment;
    return 0;
}

static inline int
end_block(void *context, const ml_block *block, uint64_t birth)
{
    fixture *f = context;
    (void)birth;
    f->made.blocks[f->made.device.block_count++] = *block;
    return 0;
}

static inline void
finish(fixture *f)
{
    ml_ledger *ledger;
    ml_ledger_new(&ledger, &f->made.recording->rules, 1024);
    for (size_t i = 0; i < f->made.device.event_count; i++) {
        ml_event event = f->made.events[i];
        ml_ledger_apply(ledger, &event);
    }
    ml_ledger_visitor visitor = {f, end_segment, end_block};
    ml_ledger_visit(ledger, &visitor);
    ml_ledger_free(ledger);
}

/* The answer for the last OOM event, which the replay must fit. */
#define ANSWER(f) \
    do { \
        finish(f); \
        CHECK_INT(ml_recording_validate((f)->made.recording), 0); \
        int64_t last_ = ml_oom_last((f)->made.recording, 0); \
        CHECK(last_ >= 0); \
        CHECK_INT(ml_oom_new((f)->made.recording, 0, (uint64_t)last_, &(f)->oom), 0); \
        CHECK_UINT((f)->oom->state->replay.misfits, 0); \
        CHECK_UINT((f)->oom->state->replay.mismatched_blocks, 0); \
    } while (0)

#define CHECK_VERDICT(f, text) CHECK_STR(ml_oom_verdict_text((f)->oom->verdict), text)

/* The advice in order, "kind:MiB ...". */
static inline const char *
advice_text(const ml_oom *oom)
{
    static char text[512];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < oom->advice_count; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s%s:%llu",
                             i == 0 ? "" : " ", ml_oom_advice_text(oom->advice[i].kind),
                             (unsigned long long)(oom->advice[i].bytes / MIB));
    }
    return text;
}

#define OOM(f, free, size) add(f, ML_ACTION_OOM, free, size)

/* One segment of 20 MiB: A 6, B 4, C 6, D 4 MiB; A and C are freed, 8 MiB asked for. */
static inline void
add_fragments(fixture *f)
{
    add(f, ML_ACTION_SEGMENT_ALLOC, BASE, 20 * MIB);
    add_alloc(f, BASE, 6 * MIB, user_line(f, 1));
    add_alloc(f, BASE + 6 * MIB, 4 * MIB, user_line(f, 2));
    add_alloc(f, BASE + 10 * MIB, 6 * MIB, user_line(f, 3));
    add_alloc(f, BASE + 16 * MIB, 4 * MIB, user_line(f, 4));
    add_free(f, BASE, 6 * MIB);
    add_free(f, BASE + 10 * MIB, 6 * MIB);
}

/* Each step keeps 2 MiB of line 7 for ever; an activation of another size each time comes
 * and goes. */
static inline void
add_steps(fixture *f, int steps, bool backward, bool marked)
{
    uint32_t kept = user_line(f, 7);
    add(f, ML_ACTION_SEGMENT_ALLOC, BASE, 64 * MIB);
    add_alloc(f, BASE, 10 * MIB, user_line(f, 1));
    for (int i = 0; i < steps; i++) {
        uint64_t at = BASE + 10 * MIB + (uint64_t)i * 2 * MIB;
        uint64_t size = (i % 2 == 0 ? 20 : 2) * MIB;
        add_alloc(f, at, 2 * MIB, kept);
        add_alloc(f, at + 2 * MIB, size, user_line(f, 5));
        f->flags |= backward ? ML_EVENT_BACKWARD : 0;
        add_free(f, at + 2 * MIB, size);
        f->flags &= (uint8_t)~ML_EVENT_BACKWARD;
        if (marked) {
            add_note(f, ML_NOTE_STEP, SAMPLE_TIME(&f->made), (uint64_t)i, 0, 0, 0);
        }
    }
}

#endif
