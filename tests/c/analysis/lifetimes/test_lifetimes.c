/* The lifetimes of blocks: worked out by hand, and of random events, most of which do not
 * fit, held against a replay at every event. */
#include "analysis/lifetimes/lifetimes.h"

#include "analysis/analysis.h"
#include "analysis/lifetimes/lifetimes_walk.h"
#include "picture_samples.h"
#include "test.h"

static const ml_lifetimes *
lifetimes_of(const sample *s)
{
    const ml_analysis *of;
    bool valid = ml_recording_validate(s->recording) == 0;
    return valid && ml_analysis_of(s->recording, 0, &of) == 0 ? &of->lifetimes : NULL;
}

static void
allocate(sample *s, uint64_t addr, uint64_t bytes)
{
    sample_event(s, ML_ACTION_ALLOC, addr, bytes, 0);
}

static void
free_block(sample *s, uint64_t addr, uint64_t bytes)
{
    sample_event(s, ML_ACTION_FREE_REQUESTED, addr, bytes, 0);
    sample_event(s, ML_ACTION_FREE_COMPLETED, addr, bytes, 0);
}

/* A tag names the block that is there then; a parameter stays one. */
static void
test_tags(void)
{
    sample s;
    sample_begin(&s);
    s.recording->rules.has_segments = 0;
    allocate(&s, BASE, 4096);
    sample_tag(&s, BASE, ML_CATEGORY_PARAMETER);
    sample_tag(&s, BASE, ML_CATEGORY_GRADIENT);
    free_block(&s, BASE, 4096);
    allocate(&s, BASE, 4096);
    sample_tag(&s, BASE, ML_CATEGORY_BUFFER);
    const ml_lifetimes *of = lifetimes_of(&s);
    CHECK_UINT(of->count, 2);
    CHECK_UINT(ml_lifetimes_row(of, 3), 1);
    CHECK_UINT(of->rows[0].birth, 1);
    CHECK_UINT(of->rows[0].requested, 2);
    CHECK_UINT(of->rows[0].end, 3);
    CHECK_INT(of->rows[0].tag, ML_CATEGORY_PARAMETER);
    CHECK_UINT(of->rows[1].birth, 4);
    CHECK_UINT(of->rows[1].requested, ML_NEVER);
    CHECK_INT(of->rows[1].tag, ML_CATEGORY_BUFFER);
    CHECK_UINT(ml_lifetimes_earlier(of, BASE), SIZE_MAX);
    sample_end(&s);

    /* A free inside a block, as a file may say, frees nothing of it. */
    sample_begin(&s);
    s.recording->rules.has_segments = 0;
    allocate(&s, BASE, 4096);
    sample_event(&s, ML_ACTION_FREE_REQUESTED, BASE + 512, 4096, 0);
    of = lifetimes_of(&s);
    CHECK_UINT(of->rows[ml_lifetimes_row(of, 0)].requested, ML_NEVER);
    sample_end(&s);
}

/* An allocation in the middle of a block whose free is missing leaves its beginning; the free
 * of that ends what is left of it. */
static void
test_a_block_that_is_cut(void)
{
    sample s;
    sample_begin(&s);
    sample_event(&s, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
    allocate(&s, BASE, 600);
    s.events[1].flags = ML_EVENT_BLOCK_KNOWN;
    s.events[1].block_bytes = 4096;
    allocate(&s, BASE + 2048, 1024);
    free_block(&s, BASE, 600);
    const ml_lifetimes *of = lifetimes_of(&s);
    CHECK_UINT(of->count, 3);
    const ml_lifetime *first = &of->rows[0];
    CHECK_UINT(first->bytes, 4096);
    CHECK_UINT(first->start, 2);
    CHECK_UINT(first->end, 3);
    const ml_lifetime *rest = ml_lifetime_last(of, first);
    CHECK_UINT(rest - of->rows, 2);
    CHECK_UINT(rest->birth, 2);
    CHECK_UINT(rest->start, 3);
    CHECK_UINT(rest->bytes, 2048);
    CHECK_UINT(rest->requested, 4);
    CHECK_UINT(rest->end, 5);
    CHECK_UINT(ml_lifetimes_request(of, 2).addr, BASE);
    CHECK_UINT(ml_lifetimes_row(of, 2), 1);
    sample_end(&s);
}

/* ---- Random ---- */

#define PLACES 24

static uint64_t
draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

/* Of all kinds, anywhere: few of them fit. */
static void
add_event(sample *s, uint64_t *state)
{
    uint64_t addr = BASE + draw(state, PLACES) * 64 * KIB;
    uint64_t bytes = draw(state, 7) * 32 * KIB + draw(state, 3);
    switch (draw(state, 8)) {
    case 0:
        sample_event(s, ML_ACTION_SEGMENT_ALLOC, addr, 2 * MIB, 0);
        break;
    case 1:
        sample_event(s,
                     draw(state, 2) ? ML_ACTION_SEGMENT_MAP : ML_ACTION_SEGMENT_UNMAP,
                     addr, 512 * KIB, 0);
        break;
    case 2:
        sample_event(s, ML_ACTION_SEGMENT_FREE, BASE, 2 * MIB, 0);
        break;
    case 3:
        sample_event(s, ML_ACTION_FREE_REQUESTED, addr, bytes, 0);
        break;
    case 4:
        sample_event(s, ML_ACTION_FREE_COMPLETED, addr, bytes, 0);
        break;
    default:
        allocate(s, addr, bytes);
        if (draw(state, 2) == 0) {
            ml_event *event = &s->events[s->device.event_count - 1];
            event->flags = ML_EVENT_BLOCK_KNOWN;
            event->block_bytes = (bytes / KIB + 1 + draw(state, 256)) * KIB;
        }
    }
    if (draw(state, 5) == 0) {
        sample_tag(s, addr + draw(state, 2) * KIB, ML_CATEGORY_BUFFER);
    }
}

typedef struct look {
    const ml_lifetimes *of;
    uint32_t moment;
    size_t blocks;
} look;

/* Each block in use has one row there, with its bytes. */
static int
look_at_block(void *context, const ml_block *block, uint64_t birth)
{
    look *l = context;
    size_t rows = 0;
    if (block->state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    l->blocks++;
    for (size_t i = 0; i < l->of->count; i++) {
        const ml_lifetime *row = &l->of->rows[i];
        rows +=
            row->start <= l->moment && row->end > l->moment &&
            (birth == ML_BEFORE_EVENTS ? row->birth == 0 : row->birth == birth + 1) &&
            ml_lifetimes_request(l->of, i).addr == block->addr &&
            row->bytes == block->size &&
            (row->requested > l->moment) == (block->state == ML_BLOCK_ALLOCATED);
    }
    return rows == 1 ? 0 : -1;
}

static void
compare_with_replay(const ml_lifetimes *of, const ml_recording *recording,
                    unsigned seed)
{
    ml_replay *replay;
    ml_lifetimes_walk walk;
    CHECK_INT(ml_replay_new(recording, 0, &replay), 0);
    ml_lifetimes_walk_begin(&walk, of, NULL, NULL);
    for (uint32_t moment = 0;; moment++) {
        const ml_totals *totals = ml_replay_totals(replay);
        look l = {of, moment, 0};
        ml_ledger_visitor visitor = {&l, NULL, look_at_block};
        int same = ml_ledger_visit(ml_replay_ledger(replay), &visitor);
        size_t there = 0;
        uint64_t mapped = 0;
        for (size_t i = 0; i < of->count; i++) {
            there += of->rows[i].start <= moment && of->rows[i].end > moment;
        }
        for (size_t i = 0; i < of->segment_count; i++) {
            bool now = of->segments[i].start <= moment && of->segments[i].end > moment;
            mapped += now ? of->segments[i].bytes : 0;
        }
        if (same != 0 || there != l.blocks || walk.allocated != totals->allocated ||
            walk.active != totals->active || walk.reserved != totals->reserved ||
            (recording->rules.has_segments && mapped != totals->reserved)) {
            CHECK_FAIL("seed %u, moment %u", seed, moment);
            break;
        }
        if (ml_replay_next(replay) == NULL) {
            break;
        }
        ml_lifetimes_walk_next(&walk);
    }
    ml_replay_free(replay);
}

static void
test_rows_are_the_blocks_of_a_replay(void)
{
    size_t cut = 0;
    for (unsigned seed = 1; seed <= 300 && !test_broken; seed++) {
        sample s;
        uint64_t state = seed;
        sample_begin(&s);
        s.recording->rules.has_segments = seed % 3 != 0;
        sample_event(&s, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
        while (s.device.event_count < 120) {
            add_event(&s, &state);
        }
        const ml_lifetimes *of = lifetimes_of(&s);
        compare_with_replay(of, s.recording, seed);
        for (size_t i = 0; i < of->count; i++) {
            cut += of->rows[i].rest != 0;
        }
        sample_end(&s);
    }
    CHECK(cut > 100);
}

int
main(void)
{
    RUN(test_tags);
    RUN(test_a_block_that_is_cut);
    RUN(test_rows_are_the_blocks_of_a_replay);
    return TEST_RESULT();
}
