/* Recordings of several threads, whose causes and categories are worked out by hand. */
#ifndef ML_TEST_CAUSE_SAMPLES_H
#define ML_TEST_CAUSE_SAMPLES_H

#include "analysis/analysis.h"
#include "base/base.h"
#include "recording_samples.h"
#include "test.h"

#define BASE UINT64_C(0x7f0000000000)
#define MAIN 1 /* numbers of threads, autograd's */
#define SECOND 2
#define ENGINE 3 /* autograd's own */

typedef struct fixture {
    sample made;
    uint32_t type; /* string: of the nodes to come */
} fixture;

/* Without segments: a block has the bytes that its event says. */
static inline void
set_up(fixture *f)
{
    memset(f, 0, sizeof(*f));
    sample_begin(&f->made);
    f->made.recording->rules.has_segments = 0;
}

static inline void
tear_down(fixture *f)
{
    sample_end(&f->made);
}

/* One frame of FILE further in than CALLER. */
static inline uint32_t
add_stack(fixture *f, uint32_t caller, const char *file, int64_t line, const char *name)
{
    return sample_call(f->made.recording, caller, file, line, name, NULL);
}

static inline ml_event *
add(fixture *f, enum ml_action action, unsigned block, uint16_t thread,
    uint64_t sequence, uint32_t stack)
{
    ml_event *event =
        sample_event(&f->made, action, BASE + block * UINT64_C(4096), 4096, stack);
    event->block_bytes = event->size;
    event->sequence = sequence;
    event->autograd_thread = thread;
    return event;
}

static inline void
alloc(fixture *f, unsigned block, uint16_t thread, uint64_t next, uint32_t stack)
{
    add(f, ML_ACTION_ALLOC, block, thread, next, stack);
}

/* By node NUMBER that THREAD made. */
static inline void
alloc_back(fixture *f, unsigned block, uint16_t thread, uint64_t number)
{
    ml_event *event = add(f, ML_ACTION_ALLOC, block, thread, number, 0);
    event->flags = ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON;
    event->node = f->type;
}

/* Likewise, where THREAD would give its next node the number NEXT. */
static inline void
alloc_in_node(fixture *f, unsigned block, uint64_t number, uint16_t thread,
              uint64_t next, uint32_t stack)
{
    ml_event *event = add(f, ML_ACTION_ALLOC, block, MAIN, number, stack);
    event->flags = ML_EVENT_BACKWARD;
    event->node = f->type;
    event->next = next;
    event->next_thread = thread;
}

static inline void
free_block(fixture *f, unsigned block, uint16_t thread, uint8_t flags)
{
    add(f, ML_ACTION_FREE_REQUESTED, block, thread, 0, 0)->flags = flags;
    add(f, ML_ACTION_FREE_COMPLETED, block, thread, 0, 0)->flags = flags;
}

static inline int64_t
line_of(const fixture *f, ml_cause cause)
{
    return f->made.recording->frames[cause.frame].line;
}

/* The category of the block that event INDEX allocated. */
static inline const char *
category(const fixture *f, size_t index)
{
    const ml_analysis *of;
    ml_recording_detach(f->made.recording);
    if (ml_analysis_of(f->made.recording, 0, &of) != 0) {
        return "no memory";
    }
    return ml_category_text(ml_explain(of, 0, index, 0).verdict.category);
}

#endif
