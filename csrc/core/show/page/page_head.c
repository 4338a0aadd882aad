/* The tables at the head of a page's data.  See page_head.h. */
#include "show/page/page_head.h"

#include <string.h>

#include "analysis/attribution/stack_facts.h"
#include "recording/code_names.h"
#include "show/page/page_device.h"
#include "show/text/json.h"

/* Incremented when pages must read a new form. */
#define FORMAT 5u

/* ---- What all share ---- */

static void
put_texts(ml_buffer *out, const char *key, size_t count, const char *(*text)(unsigned))
{
    ML_JSON_COLUMN(out, key, i, count, ml_json_c_string(out, text((unsigned)i)));
}

static void
put_decimal(ml_buffer *out, const char *key, uint64_t value)
{
    char text[24];
    size_t at = sizeof(text) - 1;
    text[at] = '\0';
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    ml_json_key_string(out, key, text + at);
}

int
ml_page_head_begin(ml_buffer *out, const ml_recording *recording, uint64_t base_us)
{
    const ml_frame *frames = recording->frames;
    const ml_stack *stacks = recording->stacks;
    ml_code_names names;
    if (ml_code_names_init(&names, recording) < 0) {
        return ML_ENOMEM;
    }
    ml_json_key_unsigned(out, "format", FORMAT);
    ml_json_key_string(out, "source", recording->source_known ? recording->source : "");
    ml_json_key_unsigned(out, "foreign", recording->foreign);
    put_decimal(out, "base_us", base_us);
    ml_json_key(out, "unread");
    ml_json_text(out, "{");
    for (unsigned kind = 0; kind < ML_UNREAD_COUNT; kind++) {
        if (recording->unread[kind] != 0) {
            ml_json_key_unsigned(out, ml_unread_text(kind), recording->unread[kind]);
        }
    }
    ml_json_text(out, "}");
    put_texts(out, "actions", ML_ACTION_COUNT, ml_action_text);
    put_texts(out, "categories", ML_CATEGORY_COUNT, ml_category_text);
    put_texts(out, "phases", ML_PHASE_COUNT, ml_phase_text);
    put_texts(out, "hows", ML_HOW_COUNT, ml_how_text);
    put_texts(out, "no_lines", ML_NO_LINE_COUNT, ml_no_line_text);
    put_texts(out, "no_modules", ML_NO_MODULE_COUNT, ml_no_module_text);
    put_texts(out, "whys", ML_WHY_COUNT, ml_why_text);
    ML_JSON_COLUMN(out, "strings", i, recording->string_count,
                   ml_json_id(out, recording, (uint32_t)i));
    ml_json_key(out, "frames");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "name", i, recording->frame_count,
                   ml_json_unsigned(out, frames[i].name));
    ML_JSON_COLUMN(out, "file", i, recording->frame_count,
                   ml_json_unsigned(out, frames[i].filename));
    ML_JSON_COLUMN(out, "line", i, recording->frame_count,
                   ml_json_signed(out, frames[i].line));
    ML_JSON_COLUMN(out, "qualname", i, recording->frame_count,
                   ml_json_unsigned(out, ml_code_name(&names, (uint32_t)i)));
    ML_JSON_COLUMN(out, "own", i, recording->frame_count,
                   ml_json_unsigned(out, ml_frame_place_of(recording, (uint32_t)i) ==
                                             ML_PLACE_USER));
    ml_json_text(out, "}");
    ml_json_key(out, "stacks");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "parent", i, recording->stack_count,
                   ml_json_unsigned(out, stacks[i].parent));
    ML_JSON_COLUMN(out, "frame", i, recording->stack_count,
                   ml_json_unsigned(out, stacks[i].frame));
    ML_JSON_COLUMN(out, "module", i, recording->stack_count,
                   ml_json_unsigned(out, stacks[i].module));
    ml_json_text(out, "}");
    ml_code_names_fini(&names);
    return 0;
}

/* The modules of all kinds as a tree, without bytes; the page sums what it shows. */
static int
make_tree(const ml_allocation_kinds *kinds, ml_module_tree **tree)
{
    ml_peak_module *modules = ml_alloc_zeroed(kinds->count + 1, sizeof(*modules));
    if (modules == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < kinds->count; i++) {
        modules[i] = (ml_peak_module){.module = kinds->list[i].module,
                                      .no_module = kinds->list[i].no_module};
    }
    int error = ml_module_tree_new(kinds->recording, modules, kinds->count, tree);
    ml_free(modules);
    return error;
}

static void
put_tree(ml_buffer *out, const ml_module_tree *tree)
{
    ml_json_key(out, "modules");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "path", i, tree->count,
                   ml_page_put_path(out, tree, (uint32_t)i));
    ML_JSON_COLUMN(out, "parent", i, tree->count,
                   ml_json_unsigned(out, tree->nodes[i].parent));
    ML_JSON_COLUMN(out, "modules", i, tree->count,
                   ml_json_unsigned(out, tree->nodes[i].modules));
    ml_json_text(out, "}");
}

int
ml_page_head_kinds(ml_buffer *out, const ml_allocation_kinds *kinds)
{
    ml_module_tree *tree = NULL;
    int error = make_tree(kinds, &tree);
    if (error < 0) {
        return error;
    }
    const ml_recording *recording = kinds->recording;
    const ml_allocation_line *lines = kinds->lines;
    const ml_allocation_kind *list = kinds->list;
#define LINE(field) recording->frames[lines[i].frame].field
    ml_json_key(out, "lines");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "file", i, kinds->line_count,
                   ml_json_unsigned(out, LINE(filename)));
    ML_JSON_COLUMN(out, "function", i, kinds->line_count,
                   ml_json_unsigned(out, LINE(name)));
    ML_JSON_COLUMN(out, "line", i, kinds->line_count, ml_json_signed(out, LINE(line)));
    ML_JSON_COLUMN(out, "until", i, kinds->line_count,
                   ml_json_signed(out, lines[i].until));
    ML_JSON_COLUMN(out, "no_line", i, kinds->line_count,
                   ml_json_unsigned(out, lines[i].no_line));
    ml_json_text(out, "}");
#undef LINE
    ml_json_key(out, "kinds");
    ml_json_text(out, "{");
#define KINDS(XX) \
    XX(stack) \
    XX(line) \
    XX(until) \
    XX(inner) \
    XX(module) \
    XX(no_module) XX(category) XX(exact) XX(why) XX(phase) XX(how) XX(name) XX(stream)
#define XX(field) \
    ML_JSON_COLUMN(out, #field, i, kinds->count, \
                   ml_json_signed(out, (int64_t)list[i].field));
    KINDS(XX)
#undef XX
#undef KINDS
    ML_JSON_COLUMN(out, "rolled", i, kinds->count,
                   ml_json_unsigned(
                       out, list[i].module == 0 ? 0 : tree->of_module[list[i].module]));
    ml_json_text(out, "}");
    put_tree(out, tree);
    ml_module_tree_free(tree);
    ML_JSON_COLUMN(out, "streams", i, kinds->stream_count,
                   ml_json_unsigned(out, kinds->streams[i]));
    return out->error;
}

/* ---- Ranks: the keys of Recording.ranks() ---- */

static void
put_known(ml_buffer *out, const char *key, bool known, uint64_t value)
{
    ml_json_key(out, key);
    if (known) {
        ml_json_unsigned(out, value);
    }
    else {
        ml_json_text(out, "null");
    }
}

static void
put_rank(ml_buffer *out, const ml_recording *recording, const ml_rank *rank)
{
    bool merged = rank->part != NULL;
    size_t first = merged ? rank->first_device : 0;
    size_t count = merged ? rank->device_count : recording->device_count;
    ml_json_next(out);
    ml_json_text(out, "{");
    put_known(out, "rank", rank->rank >= 0, (uint64_t)rank->rank);
    put_known(out, "local_rank", rank->local_rank >= 0, (uint64_t)rank->local_rank);
    put_known(out, "world_size", rank->world_size > 0, rank->world_size);
    ml_json_key(out, "file");
    ml_json_id(out, recording, rank->file);
    ml_json_key(out, "host");
    ml_json_id(out, recording, rank->host);
    ml_json_key(out, "boot_id");
    ml_json_id(out, recording, rank->boot);
    put_known(out, "pid", rank->pid > 0, rank->pid);
    ml_json_key_string(out, "state", ml_rank_state_text(rank->state));
    ml_json_key(out, "devices");
    ml_json_text(out, "[");
    for (size_t i = first; i < first + count; i++) {
        ml_json_next(out);
        ml_json_text(out, "{");
        ml_json_key_unsigned(out, "device", i);
        ml_json_key_unsigned(out, "number", merged ? recording->devices[i].number : i);
        ml_json_text(out, "}");
    }
    ml_json_text(out, "]");
    ml_json_key(out, "clock");
    ml_json_text(out, "{");
    ml_json_key_string(out, "method", ml_alignment_text(rank->alignment));
    ml_json_key(out, "offset_ns");
    ml_json_signed(out, rank->offset);
    put_known(out, "bound_ns", rank->bound != ML_NOTE_UNKNOWN, rank->bound);
    ml_json_key_unsigned(out, "common_steps", rank->common_steps);
    ml_json_text(out, "}}");
}

void
ml_page_head_ranks(ml_buffer *out, const ml_recording *recording)
{
    ml_json_key(out, "ranks");
    ml_json_text(out, "[");
    for (size_t i = 0; i < recording->rank_count; i++) {
        put_rank(out, recording, &recording->ranks[i]);
    }
    ml_json_text(out, "]");
}

/* ---- Notes ---- */

typedef struct shown {
    const char *kind;
    uint64_t time; /* unix ns */
    uint64_t end;  /* likewise; UINT64_MAX: not ended */
    uint64_t value;
    uint32_t name;
    int32_t device;
    int32_t rank;    /* index; -1: no particular rank */
    uint64_t number; /* pairs begin and end */
    bool open;
} shown;

typedef struct shown_list {
    shown *items; /* owned */
    size_t count;
    size_t capacity;
} shown_list;

static int
show(shown_list *list, shown item)
{
    void *items = list->items;
    int error = ml_grow(&items, &list->capacity, list->count + 1, sizeof(shown));
    if (error == 0) {
        list->items = items;
        list->items[list->count++] = item;
    }
    return error;
}

/* Ends the last open note of KIND and NUMBER, or the last open annotation of NAME and
 * DEVICE.  False: there is none. */
static bool
end_last(shown_list *list, const shown *end)
{
    for (size_t i = list->count; i-- > 0;) {
        shown *item = &list->items[i];
        if (item->open && item->kind == end->kind && item->number == end->number &&
            item->name == end->name && item->device == end->device &&
            item->rank == end->rank) {
            item->end = end->time;
            item->open = false;
            return true;
        }
    }
    return false;
}

static const char region[] = "region";
static const char phase[] = "phase";
static const char annotation[] = "annotation";

/* An end without a begin was open from the start. */
static int
show_end(shown_list *list, shown end, uint64_t start)
{
    if (end_last(list, &end)) {
        return 0;
    }
    end.end = end.time;
    end.time = start;
    return show(list, end);
}

static int
show_note(shown_list *list, const ml_note *note, int32_t rank, size_t first_device,
          uint64_t start)
{
    shown item = {.kind = ml_note_text(note->kind),
                  .time = note->time,
                  .end = UINT64_MAX,
                  .value = note->values[0],
                  .name = note->name,
                  .device =
                      note->device < 0 ? -1 : note->device + (int32_t)first_device,
                  .rank = rank,
                  .number = note->values[0]};
    switch (note->kind) {
    case ML_NOTE_PHASE_BEGIN:
    case ML_NOTE_REGION_BEGIN:
        item.kind = note->kind == ML_NOTE_PHASE_BEGIN ? phase : region;
        item.open = true;
        return show(list, item);
    case ML_NOTE_PHASE_END:
    case ML_NOTE_REGION_END:
        item.kind = note->kind == ML_NOTE_PHASE_END ? phase : region;
        return show_end(list, item, start);
    case ML_NOTE_STEP:
    case ML_NOTE_MARK:
    case ML_NOTE_OOM:
        return show(list, item);
    default:
        return 0;
    }
}

static int
show_notes(shown_list *list, const ml_recording *part, int32_t rank,
           size_t first_device, uint64_t start)
{
    int error = 0;
    for (size_t i = 0; i < part->note_count && error == 0; i++) {
        error = show_note(list, &part->notes[i], rank, first_device, start);
    }
    return error;
}

/* These tell memlab's own annotations of its notes. */
static bool
has_regions(const ml_recording *recording)
{
    bool any = false;
    for (size_t i = 0; i < recording->note_count && !any; i++) {
        uint8_t kind = recording->notes[i].kind;
        any = kind >= ML_NOTE_PHASE_BEGIN && kind <= ML_NOTE_REGION_END;
    }
    return any;
}

static int
show_annotations(shown_list *list, const ml_recording *recording, uint64_t start)
{
    int error = 0;
    for (size_t i = 0; i < recording->annotation_count && error == 0; i++) {
        const ml_annotation *from = &recording->annotations[i];
        shown item = {.kind = annotation,
                      .time = from->time,
                      .end = UINT64_MAX,
                      .name = from->name,
                      .device = from->device,
                      .rank = -1,
                      .open = !from->end};
        error = from->end ? show_end(list, item, start) : show(list, item);
    }
    return error;
}

static int64_t
from_base(uint64_t time, uint64_t base_us)
{
    return (int64_t)(time / 1000 - base_us);
}

static void
put_notes(ml_buffer *out, const shown_list *list, uint64_t base_us)
{
    const shown *items = list->items;
    ml_json_key(out, "notes");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "kind", i, list->count, ml_json_c_string(out, items[i].kind));
    ML_JSON_COLUMN(out, "time", i, list->count,
                   ml_json_signed(out, from_base(items[i].time, base_us)));
    ml_json_key(out, "end");
    ml_json_text(out, "[");
    for (size_t i = 0; i < list->count; i++) {
        ml_json_next(out);
        if (items[i].end == UINT64_MAX) {
            ml_json_text(out, "null");
        }
        else {
            ml_json_signed(out, from_base(items[i].end, base_us));
        }
    }
    ml_json_text(out, "]");
    ML_JSON_COLUMN(out, "name", i, list->count, ml_json_unsigned(out, items[i].name));
    ML_JSON_COLUMN(out, "device", i, list->count, ml_json_signed(out, items[i].device));
    ML_JSON_COLUMN(out, "rank", i, list->count, ml_json_signed(out, items[i].rank));
    ML_JSON_COLUMN(out, "value", i, list->count, ml_json_unsigned(out, items[i].value));
    ml_json_text(out, "}");
}

int
ml_page_head_notes(ml_buffer *out, const ml_recording *recording, uint64_t base_us)
{
    shown_list list = {0};
    uint64_t start = base_us * 1000;
    int error = 0;
    if (ml_recording_is_merged(recording)) {
        for (size_t i = 0; i < recording->rank_count && error == 0; i++) {
            const ml_rank *rank = &recording->ranks[i];
            error =
                show_notes(&list, rank->part, (int32_t)i, rank->first_device, start);
        }
    }
    else {
        error = show_notes(&list, recording, -1, 0, start);
    }
    if (error == 0 && !has_regions(recording)) {
        error = show_annotations(&list, recording, start);
    }
    put_notes(out, &list, base_us);
    ml_free(list.items);
    return error;
}

/* ---- The peak ---- */

static void
put_totals(ml_buffer *out, const ml_totals *totals)
{
#define XX(name) ml_json_key_unsigned(out, #name, totals->name);
    ML_TOTALS(XX)
#undef XX
}

static void
put_sums(ml_buffer *out, const char *key, const ml_peak_sum *sums, size_t count)
{
    ml_json_key(out, key);
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "bytes", i, count, ml_json_unsigned(out, sums[i].bytes));
    ML_JSON_COLUMN(out, "blocks", i, count, ml_json_unsigned(out, sums[i].blocks));
    ml_json_text(out, "}");
}

/* IDS: of the lines. */
static void
put_peak_lines(ml_buffer *out, const ml_peak *peak, const uint32_t *ids)
{
    const ml_peak_line *lines = peak->lines;
    size_t count = peak->line_count;
    ml_json_key(out, "by_line");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "line", i, count, ml_json_unsigned(out, ids[i]));
    ML_JSON_COLUMN(out, "until", i, count, ml_json_signed(out, lines[i].until));
    ML_JSON_COLUMN(out, "phase", i, count, ml_json_unsigned(out, lines[i].phase));
    ML_JSON_COLUMN(out, "how", i, count, ml_json_unsigned(out, lines[i].how));
    ML_JSON_COLUMN(out, "bytes", i, count, ml_json_unsigned(out, lines[i].bytes));
    ML_JSON_COLUMN(out, "blocks", i, count, ml_json_unsigned(out, lines[i].blocks));
    ml_json_text(out, "}");
}

static void
put_peak_modules(ml_buffer *out, const ml_peak *peak)
{
    const ml_peak_module *modules = peak->modules;
    size_t count = peak->module_count;
    ml_json_key(out, "by_module");
    ml_json_text(out, "{");
    ML_JSON_COLUMN(out, "module", i, count, ml_json_unsigned(out, modules[i].module));
    ML_JSON_COLUMN(out, "no_module", i, count,
                   ml_json_unsigned(out, modules[i].no_module));
    ML_JSON_COLUMN(out, "bytes", i, count, ml_json_unsigned(out, modules[i].bytes));
    ML_JSON_COLUMN(out, "blocks", i, count, ml_json_unsigned(out, modules[i].blocks));
    ml_json_text(out, "}");
}

static void
put_overhead(ml_buffer *out, const ml_peak_overhead *overhead)
{
    ml_json_key(out, "overhead");
    ml_json_text(out, "{");
    ml_json_key_unsigned(out, "inactive", overhead->inactive);
    ml_json_key_unsigned(out, "slack", overhead->slack);
    ml_json_key_unsigned(out, "largest_free", overhead->largest_free);
    ml_json_key_unsigned(out, "free_blocks", overhead->free_blocks);
    ml_json_key_unsigned(out, "segments", overhead->segments);
    ml_json_text(out, "}");
}

static void
put_peak(ml_buffer *out, const ml_peak *peak, const uint32_t *lines)
{
    ml_json_key(out, "peak");
    ml_json_text(out, "{");
    ml_json_key(out, "event");
    ml_json_signed(out, (int64_t)peak->position - 1);
    put_totals(out, &peak->totals);
    ml_json_key(out, "highest");
    ml_json_text(out, "{");
    put_totals(out, &peak->window_peaks);
    ml_json_text(out, "}");
    ml_json_key(out, "known");
    ml_json_text(out, "{");
    put_totals(out, &peak->known_peaks);
    ml_json_text(out, "}");
    ml_json_key_unsigned(out, "earlier", peak->earlier);
    ml_json_key_unsigned(out, "step", peak->step);
    ml_json_key_unsigned(out, "unattributed", peak->unattributed);
    ml_json_key_unsigned(out, "inexact", peak->inexact);
    put_peak_lines(out, peak, lines);
    put_peak_modules(out, peak);
    put_sums(out, "by_category", peak->categories, ML_CATEGORY_COUNT);
    put_sums(out, "by_phase", peak->phases, ML_PHASE_COUNT);
    put_sums(out, "unknown_because", peak->whys, ML_WHY_COUNT);
    put_overhead(out, &peak->overhead);
    ml_json_key_unsigned(out, "misfits",
                         peak->replay.misfits + peak->replay.mismatched_blocks);
    ml_json_key_unsigned(out, "uncertain", peak->replay.uncertain_bytes);
    ml_json_text(out, "}");
}

int
ml_page_head_peak(ml_buffer *out, const ml_peak *peak, ml_allocation_kinds *kinds)
{
    uint32_t *lines = ml_alloc_zeroed(peak->line_count + 1, sizeof(*lines));
    int error = lines == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < peak->block_count && error == 0; i++) {
        const ml_peak_block *block = &peak->blocks[i];
        error = ml_allocation_kinds_line(kinds, &block->cause, &lines[block->line]);
    }
    if (error == 0) {
        put_peak(out, peak, lines);
    }
    ml_free(lines);
    return error;
}
