/* Keeps the things met, their references to targets, and the things still to walk.  See
 * holders_parts.h. */
#include "holders/holders_parts.h"

/* ---- Things ---- */

bool
ml_walk_grow_table(ml_walk *w)
{
    size_t size = w->table_size != 0 ? w->table_size * 2 : 1 << 16;
    uint32_t *table = ml_alloc(size * sizeof(*table));

    if (table == NULL) {
        return false;
    }
    memset(table, 0, size * sizeof(*table));
    ml_free(w->table);
    w->table = table;
    w->table_size = size;
    for (size_t i = 0; i < w->count; i++) {
        w->table[ml_walk_slot(w, w->things[i].at)] = (uint32_t)i + 1;
    }
    return true;
}

bool
ml_walk_meet(ml_walk *w, const void *at, uint8_t kind, uint32_t *index)
{
    if (w->count * 2 >= w->table_size && !ml_walk_grow_table(w)) {
        w->failed = true;
        return false;
    }
    size_t slot = ml_walk_slot(w, at);
    if (w->table[slot] != 0) {
        *index = w->table[slot] - 1;
        return true;
    }
    if (w->count >= UINT32_MAX - 1 || ml_grow((void **)&w->things, &w->capacity,
                                              w->count + 1, sizeof(*w->things)) < 0) {
        w->failed = true;
        return false;
    }
    *index = (uint32_t)w->count++;
    w->things[*index] = (ml_thing){.at = at, .target = ML_NO_TARGET, .kind = kind};
    w->table[slot] = *index + 1;
    return true;
}

void
ml_walk_push(ml_walk *w, ml_indices *to, uint32_t index)
{
    if (ml_grow((void **)&to->at, &to->capacity, to->count + 1, sizeof(*to->at)) < 0) {
        w->failed = true;
        return;
    }
    to->at[to->count++] = index;
}

/* ---- References ---- */

/* The last reference from FROM to TO so far, or NULL. */
static ml_hold *
last_hold(ml_walk *w, uint32_t to)
{
    for (size_t i = w->hold_count; i-- > 0 && w->holds[i].from == w->from;) {
        if (w->holds[i].to == to) {
            return &w->holds[i];
        }
    }
    return NULL;
}

static void
hold(ml_walk *w, uint32_t to)
{
    ml_hold *last = last_hold(w, to);
    uint32_t nth = last != NULL ? last->nth + 1 : 0;

    w->things[to].balance--;
    if (nth == ML_HOLDS_TOLD) {
        last->more++;
        return;
    }
    if (ml_grow((void **)&w->holds, &w->hold_capacity, w->hold_count + 1,
                sizeof(*w->holds)) < 0) {
        w->failed = true;
        return;
    }
    w->holds[w->hold_count++] =
        (ml_hold){.from = w->from, .to = to, .nth = nth, .lent = w->lent};
}

void
ml_walk_reach(ml_walk *w, uint32_t to, bool near)
{
    ml_thing *thing = &w->things[to];
    bool target = thing->target != ML_NO_TARGET;

    if (target && thing->state != ML_WALK_OWN) {
        hold(w, to);
    }
    if (thing->state == ML_WALK_UNSEEN) {
        thing->state = ML_WALK_SEEN;
        thing->parent = w->from;
        thing->lent = w->lent;
        thing->near = near;
        ml_walk_push(w, target ? &w->targets : near ? &w->level : &w->next, to);
    }
}

/* ---- Roots ---- */

uint32_t
ml_walk_add_root(ml_walk *w, const void *at, uint8_t kind)
{
    uint32_t index = 0;

    if (ml_walk_meet(w, at, kind, &index)) {
        w->things[index].state = ML_WALK_SEEN;
        w->things[index].parent = index;
    }
    return index;
}

int
ml_walk_forgive(PyObject *object, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (ml_walk_look_up(w, object, &index)) {
        w->things[index].balance--;
    }
    return 0;
}
