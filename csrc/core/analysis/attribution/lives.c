/* The life of every block of one device.  See lives.h. */
#include "analysis/attribution/lives.h"

#include "base/base.h"

ml_life *
ml_lives_before(const ml_lives *lives, uint64_t addr)
{
    size_t count = lives->before_count;
    size_t at = ml_find_address(lives->before_addr, sizeof(uint64_t), count, addr);
    return at < count && lives->before_addr[at] == addr ? &lives->before[at] : NULL;
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
    return place.birth == ML_BEFORE_EVENTS ? ml_lives_before(lives, place.block.addr)
                                           : &lives->of_event[place.birth];
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

void
ml_lives_follow(ml_lives *lives, const ml_replay *replay, const ml_device_trace *trace)
{
    size_t at = ml_replay_position(replay);
    for (; lives->next_tag < trace->tag_count &&
           trace->tags[lives->next_tag].position == at;
         lives->next_tag++) {
        apply_tag(lives, replay, &trace->tags[lives->next_tag]);
    }
    if (at < trace->event_count) {
        note_end(lives, replay, &trace->events[at], at);
    }
}

static int
make_room(ml_lives *lives, const ml_replay *replay, size_t event_count)
{
    size_t count;
    const ml_block *blocks = ml_replay_initial(replay, &count);
    lives->of_event = ml_alloc_zeroed(event_count + 1, sizeof(ml_life));
    lives->before = ml_alloc_zeroed(count + 1, sizeof(ml_life));
    lives->before_addr = ml_alloc_zeroed(count + 1, sizeof(uint64_t));
    if (lives->of_event == NULL || lives->before == NULL ||
        lives->before_addr == NULL) {
        return ML_ENOMEM;
    }
    lives->event_count = event_count;
    lives->before_count = count;
    for (size_t i = 0; i < event_count; i++) {
        lives->of_event[i] =
            (ml_life){.birth = i, .end = ML_NEVER, .tag = ML_CATEGORY_COUNT};
    }
    for (size_t i = 0; i < count; i++) {
        lives->before[i] =
            (ml_life){.birth = ML_NEVER, .end = ML_NEVER, .tag = ML_CATEGORY_COUNT};
        lives->before_addr[i] = blocks[i].addr;
    }
    return 0;
}

int
ml_lives_begin(ml_lives *lives, const ml_replay *replay, size_t event_count)
{
    *lives = (ml_lives){0};
    int error = make_room(lives, replay, event_count);
    if (error < 0) {
        ml_lives_fini(lives);
    }
    return error;
}

int
ml_lives_init(ml_lives *lives, const ml_recording *recording, size_t device)
{
    const ml_device_trace *trace = &recording->devices[device];
    *lives = (ml_lives){0};
    ml_replay *replay;
    int error = ml_replay_new(recording, device, &replay);
    if (error < 0) {
        return error;
    }
    error = ml_lives_begin(lives, replay, trace->event_count);
    if (error == 0) {
        do {
            ml_lives_follow(lives, replay, trace);
        } while (ml_replay_next(replay) != NULL);
    }
    ml_replay_free(replay);
    return error;
}

void
ml_lives_fini(ml_lives *lives)
{
    ml_free(lives->of_event);
    ml_free(lives->before);
    ml_free(lives->before_addr);
    *lives = (ml_lives){0};
}
