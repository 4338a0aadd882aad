/* The setting that holds cache.  See blamed_setting.h. */
#include "lab/verdict/blamed_setting.h"

#include <string.h>

/* A setting is to blame from one part in so many of the unused bytes on. */
#define BLAMED_PART 4

static const char variable[] = "PYTORCH_CUDA_ALLOC_CONF";

/* The settings as they were given; empty where the recording does not tell. */
static ml_string
find_conf(const ml_recording *recording)
{
    for (size_t i = 0; i < recording->setting_count; i++) {
        const ml_setting *setting = &recording->settings[i];
        ml_string key = recording->strings[setting->key];
        if (setting->kind == 's' && key.length == sizeof(variable) - 1 &&
            memcmp(key.bytes, variable, key.length) == 0) {
            return recording->strings[setting->text];
        }
    }
    return (ml_string){0};
}

/* The end of the entry of CONF that begins at FROM: commas in brackets end none. */
static uint32_t
entry_end(ml_string conf, uint32_t from)
{
    unsigned depth = 0;
    uint32_t at = from;
    for (; at < conf.length && (depth != 0 || conf.bytes[at] != ','); at++) {
        depth += conf.bytes[at] == '[';
        depth -= conf.bytes[at] == ']' && depth != 0;
    }
    return at;
}

/* CONF without its bytes from FROM up to END, and the comma beside them. */
static void
leave_out(ml_string conf, uint32_t from, uint32_t end, char *out)
{
    uint32_t skip = end < conf.length ? end + 1 : end;
    uint32_t kept = end == conf.length && from != 0 ? from - 1 : from;
    memcpy(out, conf.bytes, kept);
    memcpy(out + kept, conf.bytes + skip, conf.length - skip);
    out[kept + conf.length - skip] = 0;
}

static int
try_without(const ml_advice_case *it, ml_blamed_setting *tried)
{
    ml_trial_options options = it->options;
    ml_allocator_settings *settings = &options.settings;
    int error = ml_allocator_settings_default(settings, it->own.settings.version);
    if (error == 0) {
        error = ml_allocator_settings_parse(settings, tried->instead, NULL, 0);
    }
    if (error == ML_EINVALID) {
        return 0; /* what no version of torch that is known takes */
    }
    if (it->options.settings.limited) {
        settings->limited = true;
        settings->memory_fraction = it->options.settings.memory_fraction;
    }
    ml_trial_result result;
    error = error == 0 ? ml_trial_run(it->workload, &options, &result) : error;
    if (error == 0 && result.peak.reserved < it->before.peak.reserved) {
        tried->saving = it->before.peak.reserved - result.peak.reserved;
    }
    return error;
}

int
ml_blamed_setting_find(const ml_recording *recording, size_t device, uint64_t unused,
                       ml_blamed_setting *out)
{
    *out = (ml_blamed_setting){0};
    ml_string conf = find_conf(recording);
    if (conf.length == 0 || conf.length >= sizeof(out->instead)) {
        return 0;
    }
    ml_advice_case it;
    int error = ml_advice_case_init(&it, recording, device);
    if (error < 0) {
        return error;
    }
    for (uint32_t from = 0; from < conf.length && error == 0;) {
        uint32_t end = entry_end(conf, from);
        ml_blamed_setting tried = {0};
        memcpy(tried.setting, conf.bytes + from, end - from);
        leave_out(conf, from, end, tried.instead);
        error = try_without(&it, &tried);
        if (tried.saving > out->saving && tried.saving >= unused / BLAMED_PART) {
            *out = tried;
        }
        from = end + 1;
    }
    ml_advice_case_fini(&it);
    return error;
}
