/* The lifetime of every block of one device.  See lives.h. */
#include "analysis/attribution/lives.h"

#include "base/base.h"

ml_life *
ml_lives_before(const ml_lives *lives, uint64_t addr)
{
    size_t count = lives->before_count;
    size_t at = ml_find_address(lives->before_addr, sizeof(uint64_t), count, addr);
    return at < count && lives->before_addr[at] == addr ? &lives->before[at] : NULL;
}

size_t
ml_lives_row(const ml_lives *lives, uint64_t index)
{
    uint64_t before = lives->allocates[index / 64] & ((UINT64_C(1) << index % 64) - 1);
    return lives->rank[index / 64] + (size_t)__builtin_popcountll(before);
}

/* Of the block in use that holds ADDR now, or where START, begins there. */
static ml_life *
life_at(const ml_lives *lives, const ml_replay *replay, uint64_t addr, bool start)
{
    ml_ledger_place place;
    if (!ml_ledger_locate(ml_replay_ledger(replay), addr, &place) ||
        place.block.state == ML_BLOCK_INACTIVE || (start && place.block.addr != addr)) {
        return NULL;
    }
    return place.birth == ML_BEFORE_EVENTS
               ? ml_lives_before(lives, place.block.addr)
               : &lives->rows[ml_lives_row(lives, place.birth)];
}

static void
apply_tag(const ml_lives *lives, const ml_replay *replay, const ml_tag *tag)
{
    ml_life *life = life_at(lives, replay, tag->addr, false);
    /* What waits to be freed is nobody's any more. */
    if (life == NULL || life->end != ML_NEVER) {
        return;
    }
    /* Whoever is given a tensor does not own it. */
    if (tag->category == ML_CATEGORY_INPUT
            ? life->tag == ML_CATEGORY_COUNT
            : life->tag != ML_CATEGORY_PARAMETER ||
                  tag->category == ML_CATEGORY_PARAMETER) {
        life->tag = tag->category;
        life->name = tag->name;
        life->module = tag->module;
    }
}

/* Before the event at INDEX is applied. */
static void
note_end(const ml_lives *lives, const ml_replay *replay, const ml_event *event,
         size_t index)
{
    /* An allocation ends a block whose free is missing. */
    if (event->action <= ML_ACTION_FREE_COMPLETED) {
        bool is_free = event->action != ML_ACTION_ALLOC;
        ml_life *life = life_at(lives, replay, event->addr, is_free);
        if (life != NULL && life->end == ML_NEVER) {
            life->end = index;
        }
    }
}

/* The event at INDEX allocates. */
static int
add_row(ml_lives *lives, size_t index)
{
    void *rows = lives->rows;
    int error =
        ml_grow(&rows, &lives->capacity, lives->count + 1, sizeof(lives->rows[0]));
    if (error < 0) {
        return error;
    }
    lives->rows = rows;
    lives->rows[lives->count++] =
        (ml_life){.birth = index, .end = ML_NEVER, .tag = ML_CATEGORY_COUNT};
    lives->allocates[index / 64] |= UINT64_C(1) << index % 64;
    return 0;
}

int
ml_lives_follow(ml_lives *lives, const ml_replay *replay, const ml_device_trace *trace)
{
    size_t at = ml_replay_position(replay);
    for (; lives->next_tag < trace->tag_count &&
           trace->tags[lives->next_tag].position == at;
         lives->next_tag++) {
        apply_tag(lives, replay, &trace->tags[lives->next_tag]);
    }
    if (at % 64 == 0) {
        lives->rank[at / 64] = (uint32_t)lives->count;
    }
    if (at == trace->event_count) {
        return 0;
    }
    const ml_event *event = &trace->events[at];
    note_end(lives, replay, event, at);
    return event->action == ML_ACTION_ALLOC ? add_row(lives, at) : 0;
}

void
ml_lives_born(ml_lives *lives, size_t index, const ml_event *event, uint64_t allocated)
{
    ml_life *life = &lives->rows[lives->count - 1];
    if (life->birth == index) {
        life->bytes =
            (event->flags & ML_EVENT_BLOCK_KNOWN) != 0 ? event->block_bytes : 0;
        life->allocated = allocated;
    }
}

static int
make_room(ml_lives *lives, const ml_replay *replay, size_t event_count)
{
    size_t count;
    const ml_block *blocks = ml_replay_initial(replay, &count);
    lives->allocates = ml_alloc_zeroed(event_count / 64 + 1, sizeof(uint64_t));
    lives->rank = ml_alloc_zeroed(event_count / 64 + 1, sizeof(uint32_t));
    lives->before = ml_alloc_zeroed(count + 1, sizeof(ml_life));
    lives->before_addr = ml_alloc_zeroed(count + 1, sizeof(uint64_t));
    if (lives->allocates == NULL || lives->rank == NULL || lives->before == NULL ||
        lives->before_addr == NULL) {
        return ML_ENOMEM;
    }
    lives->before_count = count;
    for (size_t i = 0; i < count; i++) {
        lives->before[i] = (ml_life){.birth = ML_NEVER,
                                     .end = ML_NEVER,
                                     .bytes = blocks[i].size,
                                     .tag = ML_CATEGORY_COUNT};
        lives->before_addr[i] = blocks[i].addr;
    }
    return 0;
}

int
ml_lives_begin(ml_lives *lives, const ml_replay *replay, const ml_device_trace *trace)
{
    *lives = (ml_lives){0};
    int error = make_room(lives, replay, trace->event_count);
    if (error < 0) {
        ml_lives_fini(lives);
    }
    return error;
}

void
ml_lives_fini(ml_lives *lives)
{
    ml_free(lives->rows);
    ml_free(lives->allocates);
    ml_free(lives->rank);
    ml_free(lives->before);
    ml_free(lives->before_addr);
    *lives = (ml_lives){0};
}
