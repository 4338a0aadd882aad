/* What the tests of growth share: runs of a few steps, made by hand. */
#ifndef ML_GROWTH_SAMPLES_H
#define ML_GROWTH_SAMPLES_H

#include "analysis/answers/growth.h"

#include "budget.h"
#include "oom_samples.h"
#include "test.h"

/* One step after the other, each of blocks that come and go. */
typedef struct run {
    fixture f;
    uint32_t line;     /* stack of the line looked at */
    uint32_t other;    /* of what each step gives back */
    uint64_t next;     /* free address */
    uint64_t steps;    /* that ended */
    uint64_t size;     /* of what is kept */
    uint64_t kept[64]; /* addresses, by step; 0: none */
    const ml_growth *growth;
} run;

static inline void
begin(run *r)
{
    memset(r, 0, sizeof(*r));
    set_up(&r->f);
    r->line = user_line(&r->f, 7);
    r->other = user_line(&r->f, 5);
    r->size = 2 * MIB;
    r->next = BASE + 10 * MIB;
    add(&r->f, ML_ACTION_SEGMENT_ALLOC, BASE, 256 * MIB);
    add_alloc(&r->f, BASE, 10 * MIB, user_line(&r->f, 1));
}

static inline uint64_t
take(run *r, uint64_t size, uint32_t stack)
{
    uint64_t at = r->next;
    add_alloc(&r->f, at, size, stack);
    r->next += (size + 511) / 512 * 512;
    return at;
}

static inline void
keep(run *r)
{
    r->kept[r->steps] = take(r, r->size, r->line);
}

static inline void
drop(run *r, uint64_t step)
{
    add_free(&r->f, r->kept[step], r->size);
    r->kept[step] = 0;
}

/* An activation comes and goes; NUMBER is what the program calls the step. */
static inline void
end_numbered(run *r, uint64_t number)
{
    uint64_t at = take(r, 4 * MIB, r->other);
    add_free(&r->f, at, 4 * MIB);
    r->next = at;
    add_note(&r->f, ML_NOTE_STEP, SAMPLE_TIME(&r->f.made), number, 0, 0, 0);
    r->steps++;
}

static inline void
end_step(run *r)
{
    end_numbered(r, r->steps);
}

static inline void
answer(run *r)
{
    finish(&r->f);
    CHECK_INT(ml_recording_validate(r->f.made.recording), 0);
    const ml_analysis *analysis;
    CHECK_INT(ml_analysis_of(r->f.made.recording, 0, &analysis), 0);
    CHECK_INT(ml_growth_of(analysis, &r->growth), 0);
}

static inline void
end(run *r)
{
    tear_down(&r->f);
}

/* Each of COUNT steps keeps something. */
static inline void
keep_always(run *r, int count)
{
    for (int i = 0; i < count; i++) {
        keep(r);
        end_step(r);
    }
}

static inline int64_t
line_of(const run *r, size_t index)
{
    const ml_recording *recording = r->f.made.recording;
    return recording->frames[r->growth->lines[index].cause.frame].line;
}

#endif
