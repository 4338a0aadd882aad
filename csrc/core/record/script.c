/* Delivers a test's events as a source.  See script.h. */
#include "record/script.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "ledger/ledger.h"
#include "record/registry.h"

typedef struct ml_script {
    ml_source source;
    _Atomic uint64_t now;                     /* time of the newest event */
    pthread_mutex_t locks[ML_SCRIPT_DEVICES]; /* each guards its ledger */
    ml_ledger *ledgers[ML_SCRIPT_DEVICES];    /* owned */
    ml_allocator_rules rules;
} ml_script;

static const ml_allocator_rules default_rules = {.max_split_bytes = UINT64_MAX,
                                                 .has_segments = 1};

static int
script_device_count(void *self)
{
    (void)self;
    return ML_SCRIPT_DEVICES;
}

static int
script_attach(void *self)
{
    (void)self;
    return 0;
}

static void
script_enable(void *self, int enabled)
{
    (void)self;
    (void)enabled;
}

typedef struct relay {
    const ml_walk_visitor *visitor;
    int device;
} relay;

static int
relay_segment(void *context, const ml_segment *segment)
{
    const relay *to = context;
    if (to->visitor->segment == NULL) {
        return 0;
    }
    ml_segment plain = *segment;
    plain.stack = 0;
    return to->visitor->segment(to->visitor->context, to->device, &plain);
}

static int
relay_block(void *context, const ml_block *block, uint64_t birth)
{
    (void)birth;
    const relay *to = context;
    if (to->visitor->block == NULL) {
        return 0;
    }
    ml_block plain = *block;
    plain.stack = 0;
    return to->visitor->block(to->visitor->context, to->device, &plain);
}

static int
script_walk(void *self, const ml_walk_visitor *visitor)
{
    ml_script *script = self;
    int result = 0;
    for (int device = 0; device < ML_SCRIPT_DEVICES && result == 0; device++) {
        pthread_mutex_lock(&script->locks[device]);
        ml_event event = {.action = ML_ACTION_SNAPSHOT};
        ml_recorder_record(&script->source, device, &event, NULL);
        relay to = {visitor, device};
        ml_ledger_visitor inner = {&to, relay_segment, relay_block};
        result = ml_ledger_visit(script->ledgers[device], &inner);
        pthread_mutex_unlock(&script->locks[device]);
    }
    return result;
}

static int
script_rules(void *self, int device, ml_allocator_rules *out)
{
    const ml_script *script = self;
    (void)device;
    *out = script->rules;
    return 0;
}

static int
script_totals(void *self, int device, ml_totals *current, ml_totals *peak)
{
    const ml_script *script = self;
    if (device < 0 || device >= ML_SCRIPT_DEVICES) {
        return ML_EINVALID;
    }
    ml_ledger_read_totals(script->ledgers[device], current, peak);
    return 0;
}

static int
script_unix_ns(void *self, uint64_t *ticks, size_t stride_bytes, size_t count)
{
    /* A script's ticks are unix nanoseconds already. */
    (void)self;
    (void)ticks;
    (void)stride_bytes;
    (void)count;
    return 0;
}

static uint64_t
script_now(void *self)
{
    return atomic_load(&((ml_script *)self)->now);
}

static const char *
script_error(void *self)
{
    (void)self;
    return NULL;
}

void
ml_script_fini(void)
{
    ml_script *script = ml_registered.script;
    for (int i = 0; script != NULL && i < ML_SCRIPT_DEVICES; i++) {
        ml_ledger_free(script->ledgers[i]);
    }
    ml_free(script);
    ml_registered.script = NULL;
}

static int
make_ledgers(ml_script *script)
{
    int result = 0;
    for (int i = 0; i < ML_SCRIPT_DEVICES && result == 0; i++) {
        pthread_mutex_init(&script->locks[i], NULL);
        result = ml_ledger_new(&script->ledgers[i], &script->rules, 0);
    }
    return result;
}

int
ml_script_register(void)
{
    if (ml_registered.script != NULL) {
        return 0;
    }
    ml_script *script = ml_alloc_zeroed(1, sizeof(*script));
    if (script == NULL) {
        return ML_ENOMEM;
    }
    script->rules = default_rules;
    script->source = (ml_source){
        .size = sizeof(ml_source),
        .version = ML_ABI_VERSION,
        .name = "script",
        .self = script,
        .ordered = 1,
        .device_count = script_device_count,
        .attach = script_attach,
        .enable = script_enable,
        .walk = script_walk,
        .rules = script_rules,
        .totals = script_totals,
        .unix_ns = script_unix_ns,
        .now = script_now,
        .error = script_error,
    };
    ml_registered.script = script;
    int result = make_ledgers(script);
    if (result == 0) {
        result = ml_recorder_add_source(&script->source);
    }
    if (result < 0) {
        ml_script_fini();
    }
    return result;
}

int
ml_script_emit(int device, const ml_event *event, const ml_event_text *text)
{
    ml_script *script = ml_registered.script;
    if (device < 0 || device >= ML_SCRIPT_DEVICES || script == NULL) {
        return ML_EINVALID;
    }
    pthread_mutex_lock(&script->locks[device]);
    atomic_store(&script->now, event->time);
    ml_event own = *event;
    ml_ledger_apply(script->ledgers[device], &own);
    own = *event;
    ml_recorder_record(&script->source, device, &own, text);
    pthread_mutex_unlock(&script->locks[device]);
    return 0;
}

int
ml_script_reset(const ml_allocator_rules *rules)
{
    ml_script *script = ml_registered.script;
    if (script == NULL) {
        return ML_ESTATE;
    }
    script->rules = rules != NULL ? *rules : default_rules;
    for (int i = 0; i < ML_SCRIPT_DEVICES; i++) {
        pthread_mutex_lock(&script->locks[i]);
        ml_ledger_clear(script->ledgers[i], &script->rules);
        pthread_mutex_unlock(&script->locks[i]);
    }
    return 0;
}
