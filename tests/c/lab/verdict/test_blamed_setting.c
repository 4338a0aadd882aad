/* Which setting holds cache, of a recording put together by hand. */
#include "lab/verdict/blamed_setting.h"

#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)

static sample s;
static ml_setting settings[2];

static void
set(unsigned i, const char *key, char kind, const char *words, int64_t integer)
{
    settings[i] = (ml_setting){
        .key = sample_string(s.recording, key), .kind = kind, .integer = integer};
    if (words != NULL) {
        settings[i].text = sample_string(s.recording, words);
    }
}

static void
take(uint64_t addr, uint64_t mib)
{
    sample_event(&s, ML_ACTION_SEGMENT_ALLOC, addr, mib * MIB, 0);
    sample_event(&s, ML_ACTION_ALLOC, addr, mib * MIB, 0);
}

/* 300 MiB are freed, then 100 asked for: blocks above 32 MiB are not split, so that these
 * come of the driver. */
static void
hold_cache(const char *conf)
{
    sample_begin(&s);
    s.recording->settings = settings;
    s.recording->setting_count = 2;
    set(0, "PYTORCH_CUDA_ALLOC_CONF", 's', conf, 0);
    set(1, "max_split_size", 'i', NULL, 32 * (int64_t)MIB);
    s.recording->rules.max_split_bytes = 32 * MIB;
    uint64_t addr = UINT64_C(1) << 40;
    take(addr, 300);
    sample_event(&s, ML_ACTION_FREE_REQUESTED, addr, 300 * MIB, 0);
    sample_event(&s, ML_ACTION_FREE_COMPLETED, addr, 300 * MIB, 0);
    take(addr << 1, 100);
}

static void
stop(void)
{
    s.recording->settings = NULL;
    s.recording->setting_count = 0;
    sample_end(&s);
}

static void
test_the_setting_without_which_less_is_reserved(void)
{
    ml_blamed_setting blamed;
    hold_cache("garbage_collection_threshold:0.9,max_split_size_mb:32,"
               "roundup_power2_divisions:[256:1,512:2]");
    CHECK_INT(ml_blamed_setting_find(s.recording, 0, 300 * MIB, &blamed), 0);
    CHECK_STR(blamed.setting, "max_split_size_mb:32");
    CHECK_STR(
        blamed.instead,
        "garbage_collection_threshold:0.9,roundup_power2_divisions:[256:1,512:2]");
    CHECK_UINT(blamed.saving, 100 * MIB);
    stop();
    hold_cache("max_split_size_mb:32");
    CHECK_INT(ml_blamed_setting_find(s.recording, 0, 300 * MIB, &blamed), 0);
    CHECK_STR(blamed.setting, "max_split_size_mb:32");
    CHECK_STR(blamed.instead, "");
    stop();
}

/* 100 MiB are less than a fourth of 500. */
static void
test_a_setting_that_holds_little_is_not_named(void)
{
    ml_blamed_setting blamed;
    hold_cache("max_split_size_mb:32");
    CHECK_INT(ml_blamed_setting_find(s.recording, 0, 500 * MIB, &blamed), 0);
    CHECK_STR(blamed.setting, "");
    stop();
}

static void
test_settings_that_make_no_sense(void)
{
    ml_blamed_setting blamed;
    hold_cache("max_split_size_mb:32,no_such_thing:[1,2");
    CHECK_INT(ml_blamed_setting_find(s.recording, 0, 300 * MIB, &blamed), 0);
    CHECK_STR(blamed.setting, "");
    stop();
}

static void
test_each_allocation_can_fail(void)
{
    hold_cache("max_split_size_mb:32");
    int result = ML_ENOMEM;
    for (long budget = 0; result < 0; budget++) {
        ml_blamed_setting blamed;
        budget_begin(budget);
        result = ml_blamed_setting_find(s.recording, 0, 300 * MIB, &blamed);
        CHECK(result == 0 || result == ML_ENOMEM);
        ml_recording_detach(s.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    stop();
}

int
main(void)
{
    RUN(test_the_setting_without_which_less_is_reserved);
    RUN(test_a_setting_that_holds_little_is_not_named);
    RUN(test_settings_that_make_no_sense);
    RUN_LONG_IN_ONE_THREAD(test_each_allocation_can_fail);
    return TEST_RESULT();
}
