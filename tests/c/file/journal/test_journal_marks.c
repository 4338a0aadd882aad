/* Owners of blocks in a file: told once, they are those that are told at every step. */
#define _GNU_SOURCE

#include "analysis/analysis.h"
#include "journal_samples.h"
#include "record/window.h"
#include "test.h"

static ml_mlab_info info;

#define PLACES 24

/* Blocks of 1 to 3 MiB at the places of a segment, and who owns them. */
typedef struct chance {
    uint64_t state;
    uint64_t taken[PLACES]; /* MiB of the block that begins there */
    unsigned owner[PLACES];
    unsigned told;
} chance;

static unsigned
draw(chance *of, unsigned below)
{
    of->state = of->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(of->state >> 33) % below;
}

static bool
is_free(const chance *of, unsigned place, unsigned length)
{
    for (unsigned i = 0; i < PLACES; i++) {
        if (of->taken[i] != 0 && i < place + length && place < i + of->taken[i]) {
            return false;
        }
    }
    return place + length <= PLACES;
}

static void
allocate_or_free(chance *of)
{
    unsigned place = draw(of, PLACES);
    uint64_t addr = SEGMENT + place * MIB;
    if (of->taken[place] != 0) {
        sample_free(0, addr, of->taken[place] * MIB, 0);
        of->taken[place] = 0;
        return;
    }
    unsigned length = 1 + draw(of, 3);
    if (is_free(of, place, length)) {
        sample_emit(0, ML_ACTION_ALLOC, addr, length * MIB, 0);
        of->taken[place] = length;
        of->owner[place] = draw(of, 6);
    }
}

/* As at a step: what lives is tagged, most of it as before. */
static void
tag_blocks(chance *of, ml_window *window)
{
    static const char *const names[] = {"weight", "bias", "exp_avg"};
    for (unsigned i = 0; i < PLACES; i++) {
        if (of->taken[i] == 0 || draw(of, 4) == 0) {
            continue;
        }
        of->owner[i] = draw(of, 10) == 0 ? draw(of, 6) : of->owner[i];
        const char *name = names[of->owner[i] % 3];
        /* Now and then by an address in its middle, where one began before. */
        uint64_t addr = SEGMENT + i * MIB;
        addr += draw(of, 5) == 0 ? (of->taken[i] - 1) * MIB : 0;
        ml_window_tag(
            window, 0, addr,
            &(ml_owner){of->owner[i] < 3 ? ML_CATEGORY_GRADIENT : ML_CATEGORY_BUFFER, 0,
                        ml_stacks_string(ml_recorder_stacks(), name, strlen(name))});
        of->told++;
    }
}

static bool
same_owner(const ml_recording *a, const ml_lifetime *left, const ml_recording *b,
           const ml_lifetime *right)
{
    const ml_string *one = &a->strings[left->name];
    const ml_string *other = &b->strings[right->name];
    return left->tag == right->tag && one->length == other->length &&
           memcmp(one->bytes, other->bytes, one->length) == 0;
}

/* What is left out of the file changes no block's owner. */
static void
test_owners_told_once_are_those_told_at_every_step(void)
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        const char *path = sample_path("owners.mlab");
        chance of = {.state = seed};
        ml_script_reset(NULL);
        sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, PLACES * MIB, 0);
        for (int i = 0; i < 20; i++) {
            allocate_or_free(&of);
        }
        ml_window *window = NULL;
        ml_window_options options = {.max_entries = 100000,
                                     .keep_events = true,
                                     .device = -1,
                                     .file = path,
                                     .file_bytes = UINT64_MAX};
        CHECK_INT(ml_window_start(ml_recorder_source("script"), &options, &window), 0);
        for (int step = 0; step < 40; step++) {
            for (unsigned i = draw(&of, 8); i > 0; i--) {
                allocate_or_free(&of);
            }
            tag_blocks(&of, window);
        }
        ml_recording *told = NULL;
        CHECK_INT(ml_window_freeze(window, 0, &told), 0);
        ml_window_stop(window);
        ml_recording *stored = sample_read(path, &info);
        CHECK(stored != NULL);
        CHECK(stored->devices[0].tag_count < of.told * 2 / 3);
        const ml_analysis *of_told, *of_stored;
        CHECK_INT(ml_analysis_of(told, 0, &of_told), 0);
        CHECK_INT(ml_analysis_of(stored, 0, &of_stored), 0);
        const ml_lifetimes *want = &of_told->lifetimes, *got = &of_stored->lifetimes;
        CHECK_UINT(got->count, want->count);
        CHECK_UINT(got->earlier_count, want->earlier_count);
        for (size_t i = 0; i < want->count; i++) {
            CHECK_UINT(got->rows[i].birth, want->rows[i].birth);
            CHECK_UINT(ml_lifetimes_request(got, i).addr,
                       ml_lifetimes_request(want, i).addr);
            CHECK(same_owner(told, &want->rows[i], stored, &got->rows[i]));
        }
        ml_recording_free(told);
        ml_recording_free(stored);
        ml_mlab_info_fini(&info);
        unlink(path);
    }
}

int
main(void)
{
    if (ml_recorder_init(sample_walk) < 0 || ml_script_register() < 0) {
        return 1;
    }
    RUN(test_owners_told_once_are_those_told_at_every_step);
    /* Last: what it tells of compiled code holds for the process. */
    sample_remove_folder();
    return TEST_RESULT();
}
