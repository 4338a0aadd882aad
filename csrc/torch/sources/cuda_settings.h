/* The settings of c10's CUDA caching allocator, from its snapshot.
 *
 * Owns their names, and the versions of torch that have each.  C++. */
#ifndef ML_CUDA_SETTINGS_H
#define ML_CUDA_SETTINGS_H

#include <cstddef>
#include <cstdint>

#include "bridge.h"

/* torch's roundup_power2_divisions: one for each power of two from 1 MiB to 32 GiB. */
constexpr size_t ml_division_count = 16;

/* Passes the settings to a visitor; keeps its first non-zero result. */
struct ml_settings_writer {
    const ml_walk_visitor *visitor;
    int result = 0;

    void put(const char *key, char kind, int64_t integer, double real, const char *text,
             const uint64_t *divisions)
    {
        if (result == 0) {
            result = visitor->setting(visitor->context, key, kind, integer, real, text,
                                      divisions);
        }
    }
    void integer(const char *key, size_t value)
    {
        put(key, 'i', static_cast<int64_t>(value), 0.0, nullptr, nullptr);
    }
    void boolean(const char *key, bool value)
    {
        put(key, 'b', value, 0.0, nullptr, nullptr);
    }
};

/* Settings that only some versions of AllocatorConfigInfo have. */
template <class Config>
auto
ml_put_graph_reuse(ml_settings_writer &out, const Config &config, int)
    -> decltype(config.graph_capture_record_stream_reuse, void())
{
    out.boolean("graph_capture_record_stream_reuse",
                config.graph_capture_record_stream_reuse);
}

template <class Config>
void
ml_put_graph_reuse(ml_settings_writer &, const Config &, long)
{
}

template <class Config>
auto
ml_put_max_round(ml_settings_writer &out, const Config &config, int)
    -> decltype(config.max_round_threshold, void())
{
    out.integer("max_round_threshold", config.max_round_threshold);
}

template <class Config>
void
ml_put_max_round(ml_settings_writer &, const Config &, long)
{
}

template <class Config>
auto
ml_put_max_cached(ml_settings_writer &out, const Config &config, int)
    -> decltype(config.max_cached_size, void())
{
    out.integer("max_cached_size", config.max_cached_size);
}

template <class Config>
void
ml_put_max_cached(ml_settings_writer &, const Config &, long)
{
}

/* 0, or VISITOR's first non-zero result. */
template <class Config>
int
ml_visit_settings(const ml_walk_visitor *visitor, const Config &config)
{
    uint64_t divisions[ml_division_count] = {};
    for (size_t i = 0; i < ml_division_count; i++) {
        if (i < config.roundup_power2_divisions.size()) {
            divisions[i] = config.roundup_power2_divisions[i];
        }
    }
    ml_settings_writer out{visitor};
    out.put("PYTORCH_CUDA_ALLOC_CONF", 's', 0, 0.0,
            config.last_allocator_settings.c_str(), nullptr);
    out.integer("max_split_size", config.max_split_size);
    out.put("garbage_collection_threshold", 'f', 0, config.garbage_collection_threshold,
            nullptr, nullptr);
    out.boolean("expandable_segments", config.expandable_segments);
    out.integer("pinned_num_register_threads", config.pinned_num_register_threads);
    out.boolean("release_lock_on_cudamalloc", config.release_lock_on_malloc);
    out.boolean("pinned_use_cuda_host_register", config.pinned_use_host_register);
    ml_put_graph_reuse(out, config, 0);
    ml_put_max_round(out, config, 0);
    ml_put_max_cached(out, config, 0);
    out.put("roundup_power2_divisions", 'd', 0, 0.0, nullptr, divisions);
    return out.result;
}

#endif
