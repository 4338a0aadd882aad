/* See saved.h. */
#include <Python.h>

#include "objects/saved.h"

#include <memory>
#include <new>
#include <unordered_set>
#include <vector>

#include "bridge.h"

namespace {

struct thing {
    int kind;
    const void *at;
};

struct follower {
    const std::function<void(c10::StorageImpl *)> &take;
    std::unordered_set<const void *> seen;
    std::vector<thing> waiting;

    static int on_edge(void *context, const ml_graph_edge *edge)
    {
        auto *self = static_cast<follower *>(context);
        if (edge->kind == ML_GRAPH_TENSOR && edge->storage != nullptr) {
            self->take(
                static_cast<c10::StorageImpl *>(const_cast<void *>(edge->storage)));
        }
        if (self->seen.insert(edge->to).second) {
            self->waiting.push_back({edge->kind, edge->to});
        }
        return 0;
    }
};

struct walk_end {
    void operator()(void *walk) const
    {
        ml_graph_table()->end(walk);
    }
};

} // namespace

void
ml_saved_visit(const void *const *tensors, size_t count,
               const std::function<void(c10::StorageImpl *)> &take)
{
    const ml_graph *graph = ml_graph_table();
    const std::unique_ptr<void, walk_end> walk(graph->begin());
    follower follow{take, {}, {}};

    if (walk == nullptr) {
        throw std::bad_alloc();
    }
    for (size_t i = 0; i < count; i++) {
        follow.seen.insert(tensors[i]);
        follow.waiting.push_back({ML_GRAPH_OBJECT, tensors[i]});
    }
    while (!follow.waiting.empty()) {
        const thing next = follow.waiting.back();
        follow.waiting.pop_back();
        int what = ML_GRAPH_IS_NOTHING;
        if (next.kind == ML_GRAPH_OBJECT) {
            what = graph->classify(walk.get(),
                                   Py_TYPE(static_cast<const PyObject *>(next.at)));
            if (what == ML_GRAPH_IS_NOTHING) {
                continue;
            }
        }
        if (graph->references(walk.get(), next.kind, what, next.at, follower::on_edge,
                              &follow) < 0) {
            throw std::bad_alloc();
        }
    }
}
