/* The GPU memory that Python's objects reach, and the decision for each storage when
 * memory is lent.
 *
 * Owns the search among tensors and the blocks of torch's allocator.  Changes nothing.
 * C++; throws std::exception. */
#ifndef ML_REACH_H
#define ML_REACH_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/TensorBase.h>

#include "bridge.h"

/* A live block of torch's allocator. */
struct ml_live_block {
    uint64_t bytes;
    uint64_t stream;
    bool is_public; /* not of a private pool */
    bool owned;     /* by a storage that was found */
    bool lent;      /* to a storage that does not own it */
};

enum class ml_fate {
    undecided,
    moves,
    is_empty,
    stays
};

struct ml_found_storage {
    c10::intrusive_ptr<c10::StorageImpl> cuda;
    c10::Device device;
    ml_live_block *block; /* borrowed; NULL: not torch's */
    ml_fate what = ml_fate::undecided;
    c10::Storage host;
};

class ml_reach {
  public:
    std::vector<at::TensorBase> tensors;
    std::vector<ml_found_storage> storages;

    /* Adds TENSOR and its parts, or STORAGE, if on a GPU. */
    void add_tensor(const at::TensorBase &tensor);
    void add_storage(const c10::Storage &storage);
    /* Decides for the added storages; LEFT: the memory that stays.  No device may be
     * working. */
    void decide(ml_left &left);

    /* The storage of TENSOR, or NULL. */
    ml_found_storage *storage_of(c10::TensorImpl &tensor);
    /* Whether TENSOR becomes a CPU tensor; all storages are decided. */
    bool moves(const at::TensorBase &tensor);
    /* Of all storages that move, once they are decided. */
    size_t moving_bytes() const;

  private:
    void find_blocks();
    void match();
    void decide_each(ml_left &left);
    bool stays(const at::TensorBase &tensor);
    void keep_parts_together();
    void count_blocks(ml_left &left) const;
    ml_live_block *block_at(uint64_t addr);

    std::unordered_map<c10::StorageImpl *, size_t> index;
    std::unordered_set<c10::TensorImpl *> seen;
    std::map<uint64_t, ml_live_block> blocks; /* by address */
};

/* Calls VISIT for the tensors that belong to TENSOR, even those that Python has not
 * seen: its components, scales, gradient, and the base of a view. */
void ml_visit_parts(const at::TensorBase &tensor,
                    const std::function<void(const at::TensorBase &)> &visit);

#endif
