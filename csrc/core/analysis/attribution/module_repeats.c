/* Finds modules that repeat.  See module_repeats.h. */
#include "analysis/attribution/module_repeats.h"

#include <string.h>

#include "base/base.h"

size_t
ml_path_number(ml_string path, size_t from, size_t *number)
{
    while (from < path.length) {
        const char *dot = memchr(path.bytes + from, '.', path.length - from);
        size_t end = dot != NULL ? (size_t)(dot - path.bytes) : path.length;
        size_t at = from;
        while (at < end && path.bytes[at] >= '0' && path.bytes[at] <= '9') {
            at++;
        }
        if (at == end && end > from) {
            *number = from;
            return end;
        }
        from = end + 1;
    }
    return 0;
}

int
ml_repeats_init(ml_repeats *repeats, const ml_recording *recording)
{
    *repeats = (ml_repeats){
        .of = ml_alloc_zeroed(recording->string_count, sizeof(*repeats->of)),
        .seen = ml_alloc_zeroed(recording->string_count, 1)};
    if (repeats->of == NULL || repeats->seen == NULL) {
        ml_repeats_fini(repeats);
        return ML_ENOMEM;
    }
    return 0;
}

void
ml_repeats_fini(ml_repeats *repeats)
{
    ml_free(repeats->instances);
    ml_free(repeats->families);
    ml_free(repeats->of);
    ml_free(repeats->seen);
    *repeats = (ml_repeats){0};
}

/* *FAMILY: the family of paths that begin with BEFORE and then have a number.  1; 0:
 * too many families; or ML_ENOMEM. */
static int
find_family(ml_repeats *repeats, ml_string before, uint32_t *family)
{
    for (size_t i = 0; i < repeats->family_count; i++) {
        if (ml_string_compare(repeats->families[i].before, before) == 0) {
            *family = (uint32_t)i;
            return 1;
        }
    }
    void *families = repeats->families;
    if (repeats->family_count == ML_REPEATS_MOST) {
        return 0;
    }
    if (ml_grow(&families, &repeats->family_capacity, repeats->family_count + 1,
                sizeof(ml_family)) < 0) {
        return ML_ENOMEM;
    }
    repeats->families = families;
    *family = (uint32_t)repeats->family_count;
    repeats->families[repeats->family_count++] = (ml_family){.before = before};
    return 1;
}

/* The same for the instance PATH, whose number begins at NUMBER. */
static int
find_instance(ml_repeats *repeats, ml_string path, size_t number, uint32_t *instance)
{
    for (size_t i = 0; i < repeats->instance_count; i++) {
        if (ml_string_compare(repeats->instances[i].path, path) == 0) {
            *instance = (uint32_t)i;
            return 1;
        }
    }
    uint32_t family = 0;
    ml_string before = {path.bytes, (uint32_t)number};
    int found = find_family(repeats, before, &family);
    void *instances = repeats->instances;
    if (found <= 0 || repeats->instance_count == ML_REPEATS_MOST) {
        return found < 0 ? found : 0;
    }
    if (ml_grow(&instances, &repeats->instance_capacity, repeats->instance_count + 1,
                sizeof(ml_instance)) < 0) {
        return ML_ENOMEM;
    }
    repeats->instances = instances;
    *instance = (uint32_t)repeats->instance_count;
    repeats->instances[repeats->instance_count++] = (ml_instance){path, family};
    ml_family *of = &repeats->families[family];
    of->first = of->instances++ == 0 ? *instance : of->first;
    return 1;
}

int
ml_repeats_add(ml_repeats *repeats, const ml_recording *recording, uint32_t module)
{
    if (repeats->seen[module]) {
        return 0;
    }
    repeats->seen[module] = 1;
    ml_string path = recording->strings[module];
    size_t from = 0;
    for (unsigned level = 0; level < ML_REPEATS_LEVELS; level++) {
        size_t number;
        size_t end = ml_path_number(path, from, &number);
        if (end == 0) {
            break;
        }
        uint32_t instance;
        ml_string to_number = {path.bytes, (uint32_t)end};
        int found = find_instance(repeats, to_number, number, &instance);
        if (found < 0) {
            return found;
        }
        repeats->of[module][level] = found == 0 ? 0 : instance + 1;
        from = end + 1;
    }
    return 0;
}

uint32_t
ml_repeats_instance(const ml_repeats *repeats, uint32_t module, uint32_t family)
{
    for (unsigned level = 0; level < ML_REPEATS_LEVELS; level++) {
        uint32_t instance = repeats->of[module][level];
        if (instance != 0 && repeats->instances[instance - 1].family == family) {
            return instance;
        }
    }
    return 0;
}
