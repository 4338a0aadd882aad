/* The verdict on a run.  See run_verdict.h. */
#include "lab/verdict/run_verdict.h"

#include "analysis/answers/oom.h"
#include "base/base.h"
#include "gpu/gpu_account.h"

/* Reported from this share of the whole on. */
#define UNUSED_PERCENT 10
#define OUTSIDE_PERCENT 20
/* Other processes are named from this share of what is outside on. */
#define OTHERS_PERCENT 50
#define EVALUATION_PERCENT 5
/* At this share of the GPU's memory in use, memory is tight. */
#define TIGHT_PERCENT 90
/* Unused memory counts from this share of the GPU's memory on. */
#define MATTERS_PERCENT 2
/* Less than this share of the GPU's memory does not lead, if the run fits. */
#define LEADS_PERCENT 1
/* From this share in segments with used blocks on, unused memory is fragmentation. */
#define SPLIT_PERCENT 50

typedef struct maker {
    const ml_analysis *analysis;
    ml_run_verdict *verdict;
    const uint8_t *stages;
    uint64_t
        tight; /* bytes that were free where these were few; UINT64_MAX: enough were */
} maker;

static bool
is_share(uint64_t part, uint64_t whole, unsigned percent)
{
    return part != 0 && part / percent * 100 >= whole;
}

static ml_finding *
add_finding(ml_run_verdict *verdict, enum ml_finding_kind kind, uint64_t bytes,
            uint64_t of)
{
    ml_finding *finding = &verdict->findings[verdict->finding_count++];
    *finding = (ml_finding){
        .kind = (uint8_t)kind, .stage = ML_STAGE_COUNT, .bytes = bytes, .of = of};
    return finding;
}

static const ml_finding *
find_kind(const ml_run_verdict *verdict, enum ml_finding_kind kind)
{
    for (size_t i = 0; i < verdict->finding_count; i++) {
        if (verdict->findings[i].kind == kind) {
            return &verdict->findings[i];
        }
    }
    return NULL;
}

/* ---- Findings ---- */

/* Of memory that others than torch's allocator wanted. */
static void
find_no_room(const maker *m)
{
    const ml_recording *recording = m->analysis->recording;
    for (size_t i = recording->note_count; i > 0; i--) {
        const ml_note *note = &recording->notes[i - 1];
        if (note->kind == ML_NOTE_NO_ROOM &&
            (note->device < 0 || (size_t)note->device == m->analysis->device)) {
            add_finding(m->verdict, ML_FINDING_NO_ROOM_OUTSIDE, note->values[0],
                        note->values[1])
                ->said = note->name;
            return;
        }
    }
}

static void
find_failure(const maker *m)
{
    const ml_analysis *a = m->analysis;
    int64_t last = ml_oom_last(a->recording, a->device);
    if (last >= 0) {
        ml_finding *finding = add_finding(
            m->verdict, ML_FINDING_OUT_OF_MEMORY,
            ml_events_size(&a->trace->events, (size_t)last), m->verdict->peak.reserved);
        finding->stage = m->stages[last];
        finding->cause = ml_causes_of(a->causes, a->device, (size_t)last);
    }
}

/* Reports only the line that grows most. */
static void
find_growth(const maker *m)
{
    const ml_growth *growth = m->verdict->growth;
    if (growth->count != 0) {
        const ml_growing *line = &growth->lines[0];
        ml_finding *finding = add_finding(
            m->verdict, line->certain ? ML_FINDING_GROWS : ML_FINDING_MAY_GROW,
            line->per_step, line->bytes);
        finding->cause = line->cause;
        finding->growing = line;
    }
    const ml_growing_streams *streams = &growth->workspaces;
    if (streams->streams != 0) {
        add_finding(m->verdict, ML_FINDING_WORKSPACES_GROW, streams->per_step,
                    streams->bytes);
    }
}

/* The most bytes allocated outside evaluations; 0: the program does not train. */
static uint64_t
peak_of_training(const maker *m)
{
    const ml_lifetimes *lifetimes = &m->analysis->lifetimes;
    bool trains = false;
    for (size_t i = 0; i < m->analysis->trace->event_count && !trains; i++) {
        trains = m->stages[i] == ML_STAGE_BACKWARD;
    }
    uint64_t most = 0;
    size_t event = 0;
    unsigned stage = ML_STAGE_OTHER;
    for (size_t i = 0; trains && i < lifetimes->count; i++) {
        const ml_lifetime *life = &lifetimes->rows[i];
        bool own = life->birth != 0 && life->start == life->birth;
        for (; event < life->birth; event++) {
            stage = ml_stage_around(stage, m->stages[event]);
        }
        if (own && life->allocated > most && !ml_stage_is_evaluation(stage)) {
            most = life->allocated;
        }
    }
    return most;
}

static void
find_evaluation(const maker *m)
{
    ml_run_verdict *verdict = m->verdict;
    if (!ml_stage_is_evaluation(verdict->stage)) {
        return;
    }
    uint64_t training = peak_of_training(m);
    uint64_t above = verdict->peak.allocated - training;
    if (training != 0 && is_share(above, verdict->peak.allocated, EVALUATION_PERCENT)) {
        ml_finding *finding =
            add_finding(verdict, ML_FINDING_PEAK_IN_EVALUATION, above, training);
        finding->stage = verdict->stage;
        finding->cause = verdict->at;
    }
}

/* What of the cache was in pieces when request LAST failed. */
static int
find_fragmented(const maker *m, int64_t last)
{
    ml_oom *oom;
    int error =
        ml_oom_new(m->analysis->recording, m->analysis->device, (uint64_t)last, &oom);
    if (error == 0) {
        add_finding(m->verdict, ML_FINDING_FRAGMENTED,
                    oom->unused[ML_OOM_UNUSED_ELIGIBLE].bytes,
                    oom->state->totals.reserved);
        ml_oom_free(oom);
    }
    return error;
}

/* Of the instant of the most reserved bytes where trials tell it, else between the peaks. */
static int
find_unused(const maker *m)
{
    ml_run_verdict *verdict = m->verdict;
    uint64_t reserved = verdict->peak.reserved;
    uint64_t unused = reserved - verdict->peak.active;
    uint64_t split = 0;
    int64_t last = ml_oom_last(m->analysis->recording, m->analysis->device);
    if (last >= 0) {
        return verdict->fit.fragmented ? find_fragmented(m, last) : 0;
    }
    if (verdict->advices != NULL) {
        const ml_trial_result *before = &verdict->advices->before;
        reserved = before->at_reserved_peak.reserved;
        unused = reserved - before->at_reserved_peak.active;
        split = before->inactive_split;
    }
    if (is_share(unused, reserved, UNUSED_PERCENT) &&
        (verdict->total == 0 || is_share(unused, verdict->total, MATTERS_PERCENT))) {
        bool fragmented = is_share(split, unused, SPLIT_PERCENT);
        add_finding(verdict, fragmented ? ML_FINDING_FRAGMENTED : ML_FINDING_CACHE_HELD,
                    fragmented ? split : unused, reserved);
        if (!fragmented && verdict->advices != NULL) {
            return ml_blamed_setting_find(m->analysis->recording, m->analysis->device,
                                          unused, &verdict->blamed);
        }
    }
    return 0;
}

static void
find_room(maker *m)
{
    ml_run_verdict *verdict = m->verdict;
    const ml_analysis *a = m->analysis;
    ml_gpu_account account;
    uint32_t reason;
    if (!ml_gpu_account_at(a->recording, (int)a->device, verdict->peak_time,
                           &verdict->peak, &account, &reason) ||
        account.usable == ML_NOTE_UNKNOWN || account.usable == 0) {
        return;
    }
    verdict->total = account.usable;
    int64_t torch = account.bytes[ML_LINE_torch_allocated] +
                    account.bytes[ML_LINE_torch_pending_free] +
                    account.bytes[ML_LINE_torch_cached];
    uint64_t outside = account.used > torch ? (uint64_t)(account.used - torch) : 0;
    uint64_t used = outside + verdict->peak.reserved;
    uint64_t left = account.usable > used ? account.usable - used : 0;
    bool tight = is_share(used, account.usable, TIGHT_PERCENT);
    m->tight = tight ? left : UINT64_MAX;
    if (find_kind(verdict, ML_FINDING_OUT_OF_MEMORY) == NULL &&
        find_kind(verdict, ML_FINDING_NO_ROOM_OUTSIDE) == NULL) {
        add_finding(verdict, tight ? ML_FINDING_TIGHT : ML_FINDING_FITS, left,
                    account.usable);
    }
    if (is_share(outside, account.usable, OUTSIDE_PERCENT)) {
        int64_t others = account.bytes[ML_LINE_other_processes];
        bool mostly = others > 0 && is_share((uint64_t)others, outside, OTHERS_PERCENT);
        add_finding(verdict, ML_FINDING_OUTSIDE, outside, account.usable)->others =
            mostly ? (uint64_t)others : 0;
    }
}

/* Chooses the best advice of each kind that works with those before it: of nested
 * modules, for instance, one. */
static void
choose_changes(ml_run_verdict *verdict)
{
    const ml_advices *advices = verdict->advices;
    bool told[ML_ADVICE_COUNT] = {false};
    size_t count = advices != NULL ? advices->count : 0;
    for (size_t i = 0; i < count && verdict->change_count < ML_CHANGES_MOST; i++) {
        const ml_advice *advice = &advices->list[i];
        /* If memory ran out, settings count only if they get past the request. */
        bool setting = advice->kind == ML_ADVICE_SETTINGS ||
                       advice->kind == ML_ADVICE_FRAGMENTATION;
        if (setting && verdict->has_fit && verdict->fit.failed &&
            !verdict->fit.fragmented) {
            continue;
        }
        if (advice->together || !told[advice->kind]) {
            told[advice->kind] = true;
            verdict->changes[verdict->change_count++] = i;
        }
    }
}

/* The kind as whose FINDING is ranked. */
static unsigned
rank_of(const ml_run_verdict *verdict, const ml_finding *finding)
{
    bool small = finding->kind == ML_FINDING_PEAK_IN_EVALUATION &&
                 !is_share(finding->bytes, verdict->total, LEADS_PERCENT);
    return small ? ML_FINDING_FITS : finding->kind;
}

/* Of one rank those found first come first. */
static void
sort_by_urgency(ml_run_verdict *verdict)
{
    for (size_t i = 1; i < verdict->finding_count; i++) {
        ml_finding moved = verdict->findings[i];
        unsigned rank = rank_of(verdict, &moved);
        size_t at = i;
        for (; at > 0 && rank_of(verdict, &verdict->findings[at - 1]) > rank; at--) {
            verdict->findings[at] = verdict->findings[at - 1];
        }
        verdict->findings[at] = moved;
    }
}

/* Finds what makes the run fit, if it ran out of memory or nearly did. */
static int
find_fit(const maker *m)
{
    ml_run_verdict *verdict = m->verdict;
    bool failed = find_kind(verdict, ML_FINDING_OUT_OF_MEMORY) != NULL;
    if (m->tight == UINT64_MAX && !failed) {
        return 0;
    }
    /* Of a run that did not fail: reserved bytes and free bytes. */
    uint64_t memory = failed ? UINT64_MAX : verdict->peak.reserved + m->tight;
    int error = ml_make_fit_of(m->analysis->recording, m->analysis->device, memory,
                               &verdict->fit);
    verdict->has_fit = error == 0;
    return error == ML_EUNSUPPORTED || error == ML_ELIMIT ? 0 : error;
}

/* ---- All of it ---- */

static int
fill_verdict(maker *m, bool trials)
{
    const ml_analysis *a = m->analysis;
    ml_run_verdict *verdict = m->verdict;
    verdict->peak = a->peaks;
    verdict->stage = ML_STAGE_OTHER;
    if (a->peak != 0) {
        size_t event = (size_t)a->peak - 1;
        verdict->stage = m->stages[event];
        verdict->at = ml_causes_of(a->causes, a->device, event);
        verdict->peak_time = ml_events_time(&a->trace->events, event);
    }
    else if (a->peaks.reserved == 0) {
        /* The request that failed is the only instant. */
        int64_t last = ml_oom_last(a->recording, a->device);
        verdict->peak_time =
            last >= 0 ? ml_events_time(&a->trace->events, (size_t)last) : 0;
    }
    int error = ml_growth_of(a, &verdict->growth);
    if (error == 0 && trials) {
        error = ml_advices_new(a->recording, a->device, UINT64_MAX, &verdict->advices);
        error = error == ML_EUNSUPPORTED || error == ML_ELIMIT ? 0 : error;
    }
    if (error < 0) {
        return error;
    }
    find_failure(m);
    find_no_room(m);
    find_growth(m);
    find_room(m);
    error = trials ? find_fit(m) : 0;
    if (error < 0) {
        return error;
    }
    find_evaluation(m);
    error = find_unused(m);
    if (error < 0) {
        return error;
    }
    sort_by_urgency(verdict);
    choose_changes(verdict);
    return 0;
}

int
ml_run_verdict_new(const ml_recording *recording, size_t device, bool trials,
                   ml_run_verdict **out)
{
    const ml_recording *part = ml_recording_part(recording, &device);
    maker m = {.tight = UINT64_MAX};
    int error = ml_analysis_of(part, device, &m.analysis);
    if (error < 0) {
        return error;
    }
    uint8_t *stages = NULL;
    m.verdict = ml_alloc_zeroed(1, sizeof(*m.verdict));
    error = m.verdict == NULL ? ML_ENOMEM : ml_stages_new(m.analysis, &stages);
    m.stages = stages;
    if (error == 0) {
        error = fill_verdict(&m, trials);
    }
    ml_free(stages);
    if (error < 0) {
        ml_run_verdict_free(m.verdict);
        return error;
    }
    *out = m.verdict;
    return 0;
}

bool
ml_run_verdict_tries(const ml_recording *recording, size_t device)
{
    return recording->devices[device].event_count <= ML_VERDICT_TRIED_EVENTS;
}

void
ml_run_verdict_free(ml_run_verdict *verdict)
{
    if (verdict != NULL) {
        ml_advices_free(verdict->advices);
        ml_free(verdict);
    }
}

const char *
ml_finding_text(unsigned kind)
{
    static const char *const texts[] = {ML_FINDINGS(ML_LISTED_TEXT)};
    return kind < ML_FINDING_COUNT ? texts[kind] : "";
}
