/* The text form of the allocator's settings: what torch 2.11 takes and refuses, and what
 * comes of it.  The cases were tried with torch itself. */
#include "lab/simulator/allocator_settings.h"

#include <stdlib.h>

#include "base/base.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)

static ml_allocator_settings settings;
static char problem[1000];

static int
parse(unsigned version, const char *conf)
{
    problem[0] = '\0';
    int error = ml_allocator_settings_default(&settings, version);
    return error != 0
               ? error
               : ml_allocator_settings_parse(&settings, conf, problem, sizeof(problem));
}

static void
test_defaults(void)
{
    CHECK_INT(parse(211, ""), 0);
    CHECK_UINT(settings.max_split_bytes, UINT64_MAX);
    CHECK_UINT(settings.large_segment_bytes, 20 * MIB);
    CHECK_UINT(settings.max_non_split_rounding, 20 * MIB);
    CHECK(!settings.expandable_segments && !settings.limited);
    CHECK_INT(settings.order, ML_ORDER_ADDRESS);
    CHECK_INT(parse(212, ""), 0);
    CHECK_INT(settings.order, ML_ORDER_BLOCK);
    CHECK_INT(parse(213, ""), 0);
    CHECK_INT(settings.order, ML_ORDER_SEGMENT);
    CHECK_INT(parse(205, ""), ML_EINVALID);
}

static void
test_values(void)
{
    CHECK_INT(parse(211, "max_split_size_mb:128, garbage_collection_threshold:0.5,"
                         "expandable_segments:True,max_non_split_rounding_mb:30,"
                         "per_process_memory_fraction:0.25,"),
              0);
    CHECK_UINT(settings.max_split_bytes, 128 * MIB);
    CHECK(settings.gc_threshold == 0.5);
    CHECK(settings.expandable_segments && settings.limited);
    CHECK_UINT(settings.max_non_split_rounding, 30 * MIB);
    CHECK(settings.memory_fraction == 0.25);
    /* The rounding goes with the segments, which are read first wherever they stand. */
    CHECK_INT(parse(211, "max_split_size_mb:40,large_segment_size_mb:32"), 0);
    CHECK_UINT(settings.max_non_split_rounding, 32 * MIB);
    CHECK_INT(parse(211, "max_split_size_mb:30,large_segment_size_mb:32"), ML_EINVALID);
    /* A second text takes back what it does not name, but not all. */
    CHECK_INT(parse(211, "max_split_size_mb:40,expandable_segments:True"), 0);
    CHECK_INT(ml_allocator_settings_parse(&settings, "", problem, sizeof(problem)), 0);
    CHECK_UINT(settings.max_split_bytes, UINT64_MAX);
    CHECK(settings.expandable_segments);
    CHECK(ml_allocator_settings_rules(&settings).expandable_segments);
}

static void
check_divisions(const char *conf, const uint32_t want[16])
{
    CHECK_INT(parse(211, conf), 0);
    CHECK_INT(memcmp(settings.roundup_divisions, want, 16 * sizeof(*want)), 0);
}

static void
test_divisions(void)
{
    const uint32_t all[16] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
    check_divisions("roundup_power2_divisions:4", all);
    check_divisions("roundup_power2_divisions:[131072:4]", all);
    const uint32_t mixed[16] = {8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1};
    check_divisions("roundup_power2_divisions:[64:8,256:4,1024:4,>:1]", mixed);
    const uint32_t down[16] = {2, 2, 2, 2, 2, 2, 8, 16, 16, 16, 16, 16, 16, 16, 16, 16};
    check_divisions("roundup_power2_divisions:[512:2,64:8,>:16]", down);
    const uint32_t none[16] = {0};
    check_divisions("roundup_power2_divisions:[]", none);
    /* Before 2.9 the rest began with the last interval named. */
    CHECK_INT(parse(208, "roundup_power2_divisions:[256:4,>:2]"), 0);
    CHECK_UINT(settings.roundup_divisions[8], 2);
}

/* torch >= 2.9 does not look at what stands between; those before do. */
static void
test_marks(void)
{
    CHECK_INT(parse(211, "max_split_size_mb,128"), 0);
    CHECK_INT(parse(211, "max_split_size_mb:30]expandable_segments:True"), 0);
    CHECK(settings.expandable_segments);
    CHECK_INT(parse(208, "max_split_size_mb,128"), ML_EINVALID);
    CHECK_STR(problem, "max_split_size_mb: expected ':', not ','");
    CHECK_INT(parse(211, "max_split_size_mb:1 28x"), 0);
    CHECK_UINT(settings.max_split_bytes, 128 * MIB);
}

static void
test_refusals(void)
{
    static const char *const refused[][2] = {
        {"max_split_size_mb:19", "max_split_size_mb: 19 is too small, it must be at "
                                 "least 20"},
        {"max_split_size_mb", "max_split_size_mb: a value is missing"},
        {"max_split_size_mb:", "max_split_size_mb: a value is missing"},
        {"max_split_size_mb:abc", "max_split_size_mb: 'abc' is not a whole number"},
        {"max_split_size_mb:99999999999999999999",
         "max_split_size_mb: '99999999999999999999' is not a whole number"},
        {"large_segment_size_mb:10",
         "large_segment_size_mb: 10 is too small, it must be at least 11"},
        {"expandable_segments:true",
         "expandable_segments: expected True or False, not 'true'"},
        {"release_lock_on_cudamalloc:1",
         "release_lock_on_cudamalloc: expected True or False, not '1'"},
        {"garbage_collection_threshold:1",
         "garbage_collection_threshold: 1 is not between 0 and 1"},
        {"garbage_collection_threshold:nan",
         "garbage_collection_threshold: nan is not between 0 and 1"},
        {"per_process_memory_fraction:1.5",
         "per_process_memory_fraction: 1.5 is not between 0 and 1"},
        {"roundup_power2_divisions:3",
         "roundup_power2_divisions: 3 is not a power of 2"},
        {"roundup_power2_divisions:[256:3]",
         "roundup_power2_divisions: 3 is neither a power of 2 nor 0"},
        {"roundup_power2_divisions:[3:1]",
         "roundup_power2_divisions: the interval 3 is not a power of 2"},
        {"roundup_power2_divisions:[", "a ']' is missing"},
        {"pinned_num_register_threads:3",
         "pinned_num_register_threads: 3 is not a power of 2 up to 128"},
        {"pinned_reserve_segment_size_mb:0",
         "pinned_reserve_segment_size_mb: 0 is too small"},
        {"backend:cudaMallocAsync",
         "backend: only the native allocator is modelled, not cudaMallocAsync"},
        {"backend:foo", "backend: expected native or cudaMallocAsync, not 'foo'"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CHECK_INT(parse(211, refused[i][0]), ML_EINVALID);
        CHECK_STR(problem, refused[i][1]);
    }
    CHECK_UINT(settings.max_split_bytes, UINT64_MAX);
}

/* Keys come with versions; a wrong one is named, with those that there are. */
static void
test_keys(void)
{
    CHECK_INT(parse(211, "max_split:20"), ML_EINVALID);
    CHECK(strstr(problem, "torch 2.11 does not know 'max_split'; it knows backend, "
                          "expandable_segments, ") == problem);
    CHECK(strstr(problem, "throw_on_cudamalloc_oom") == NULL);
    CHECK_INT(parse(211, "throw_on_cudamalloc_oom:True"), ML_EINVALID);
    CHECK_INT(parse(212, "throw_on_cudamalloc_oom:True"), 0);
    CHECK(settings.reject_early);
    CHECK_INT(parse(215, "expandable_segments_reserve_by_class:[small:1,large:2]"), 0);
    CHECK_INT(parse(215, "expandable_segments_reserve:0.5"), 0);
    CHECK(settings.reserve == 0.5 && !settings.reserve_in_gib);
    CHECK_INT(parse(215, "expandable_segments_reserve:40G"), 0);
    CHECK(settings.reserve == 40 && settings.reserve_in_gib);
    /* torch warns of these and goes on. */
    CHECK_INT(parse(215, "expandable_segments_reserve:40M"), 0);
    CHECK(settings.reserve == 0);
    CHECK_INT(parse(215, "expandable_segments_reserve:-1"), 0);
    CHECK(settings.reserve == 0);
    CHECK_INT(parse(211, "foo:[1,2],max_split_size_mb:30"), ML_EINVALID);
}

static size_t allowed_allocations;

static void *
failing_realloc(void *pointer, size_t bytes)
{
    if (bytes != 0 && allowed_allocations == 0) {
        return NULL;
    }
    allowed_allocations -= bytes != 0;
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    return realloc(pointer, bytes);
}

static void
test_no_memory(void)
{
    int results[40];
    ml_set_realloc(failing_realloc);
    for (size_t tries = 0; tries < 40; tries++) {
        allowed_allocations = tries;
        results[tries] = parse(211, "what:1");
    }
    ml_set_realloc(NULL);
    CHECK_INT(results[0], ML_ENOMEM);
    CHECK_INT(results[2], ML_ENOMEM);
    CHECK_INT(results[39], ML_EINVALID);
}

int
main(void)
{
    RUN(test_defaults);
    RUN(test_values);
    RUN(test_divisions);
    RUN(test_marks);
    RUN(test_refusals);
    RUN(test_keys);
    RUN(test_no_memory);
    return TEST_RESULT();
}
