/* See reach.h. */
#include "objects/reach.h"

#include <stdexcept>

#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "objects/graph.h"
#include "objects/tensor_fields.h"

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

using c10::StorageImpl;
using c10::TensorImpl;

/* Calls VISIT(Tensor) for the components of a sparse TENSOR; false: it is not
 * sparse. */
template <class Visit>
bool
visit_components(const at::TensorBase &tensor, const Visit &visit)
{
    return ml_visit_components(
        *tensor.unsafeGetTensorImpl(),
        [&](const char *, const at::Tensor &component) { visit(component); });
}

bool
is_sparse(const at::TensorBase &tensor)
{
    return visit_components(tensor, [](const at::TensorBase &) {});
}

/* Calls VISIT(Tensor) for the scales of a TENSOR quantized by channel. */
template <class Visit>
void
visit_scales(const at::TensorBase &tensor, const Visit &visit)
{
    auto *quantized = dynamic_cast<at::QTensorImpl *>(tensor.unsafeGetTensorImpl());
    const at::QuantizerPtr quantizer =
        quantized != nullptr ? quantized->quantizer() : at::QuantizerPtr();
    const auto *by_channel =
        dynamic_cast<const at::PerChannelAffineQuantizer *>(quantizer.get());
    if (by_channel != nullptr) {
        visit(by_channel->scales());
        visit(by_channel->zero_points());
    }
}

/* Receives the live blocks. */
struct block_walk {
    std::map<uint64_t, ml_live_block> &blocks;
    ml_segment segment;

    static int on_segment(void *context, int, const ml_segment *segment)
    {
        static_cast<block_walk *>(context)->segment = *segment;
        return 0;
    }
    static int on_block(void *context, int, const ml_block *block)
    {
        auto *self = static_cast<block_walk *>(context);
        if (block->state == ML_BLOCK_ALLOCATED) {
            const uint64_t *pool = self->segment.pool;
            self->blocks[block->addr] = {block->size, self->segment.stream,
                                         pool[0] == 0 && pool[1] == 0, false, false};
        }
        return 0;
    }
};

} // namespace

void
ml_visit_parts(const at::TensorBase &tensor,
               const std::function<void(const at::TensorBase &)> &visit)
{
    visit_components(tensor, visit);
    visit_scales(tensor, visit);
    visit(tensor.unsafeGetTensorImpl()->grad());
    if (tensor.is_view()) {
        visit(tensor._base());
    }
}

void
ml_reach::add_storage(const c10::Storage &storage)
{
    if (!storage || !storage.device().is_cuda()) {
        return;
    }
    StorageImpl *impl = storage.unsafeGetStorageImpl();
    if (index.emplace(impl, storages.size()).second) {
        storages.push_back({ml_own_storage(storage),
                            storage.device(),
                            nullptr,
                            ml_fate::undecided,
                            {}});
    }
}

void
ml_reach::add_tensor(const at::TensorBase &tensor)
{
    if (!tensor.defined() ||
        !ml_is_on(*tensor.unsafeGetTensorImpl(), c10::DeviceType::CUDA) ||
        !seen.insert(tensor.unsafeGetTensorImpl()).second) {
        return;
    }
    tensors.emplace_back(tensor);
    add_storage(ml_tensor_fields::storage(*tensor.unsafeGetTensorImpl()));
    ml_visit_parts(tensor, [this](const at::TensorBase &part) { add_tensor(part); });
}

ml_found_storage *
ml_reach::storage_of(TensorImpl &tensor)
{
    const auto at =
        index.find(ml_tensor_fields::storage(tensor).unsafeGetStorageImpl());
    return at == index.end() ? nullptr : &storages[at->second];
}

void
ml_reach::find_blocks()
{
    if (caching::get()->name() != "native") {
        return;
    }
    block_walk walk{blocks, {}};
    const ml_walk_visitor visitor = {&walk, block_walk::on_segment,
                                     block_walk::on_block, nullptr, nullptr};
    if (ml_cuda_walk(&visitor) != 0) {
        throw std::runtime_error(ml_cuda_error());
    }
}

/* The block around ADDR; NULL: not torch's. */
ml_live_block *
ml_reach::block_at(uint64_t addr)
{
    auto after = blocks.upper_bound(addr);
    if (after == blocks.begin() || addr - (--after)->first >= after->second.bytes) {
        return nullptr;
    }
    return &after->second;
}

/* Finds each storage's block, and whether the storage owns it. */
void
ml_reach::match()
{
    for (ml_found_storage &storage : storages) {
        const at::DataPtr &data = ml_storage_data(*storage.cuda);
        const uint64_t addr = reinterpret_cast<uint64_t>(data.get());
        storage.block = data.get() != nullptr ? block_at(addr) : nullptr;
        if (storage.block != nullptr) {
            /* Memory of another process has a deleter of its own. */
            const bool owns = data.get_deleter() == caching::get()->raw_deleter() &&
                              blocks.count(addr) != 0;
            (owns ? storage.block->owned : storage.block->lent) = true;
        }
    }
}

void
ml_reach::decide_each(ml_left &left)
{
    for (ml_found_storage &storage : storages) {
        if (ml_storage_data(*storage.cuda).get() == nullptr) {
            storage.what = ml_fate::is_empty;
            continue;
        }
        const ml_live_block *block = storage.block;
        storage.what = block != nullptr && block->is_public && !block->lent
                           ? ml_fate::moves
                           : ml_fate::stays;
        if (block == nullptr) {
            (storage.cuda->received_cuda() ? left.shared : left.external) +=
                storage.cuda->nbytes();
        }
    }
}

/* Whether a part of a sparse TENSOR, or else its storage, stays. */
bool
ml_reach::stays(const at::TensorBase &tensor)
{
    const ml_found_storage *storage = storage_of(*tensor.unsafeGetTensorImpl());
    bool result = storage != nullptr && storage->what == ml_fate::stays;
    if (is_sparse(tensor)) {
        visit_components(tensor, [&](const at::TensorBase &part) {
            result = result || (part.defined() && stays(part));
        });
    }
    return result;
}

/* A sparse tensor is on one device: if a part stays, all stay. */
void
ml_reach::keep_parts_together()
{
    for (bool changed = true; changed;) {
        changed = false;
        for (const at::TensorBase &tensor : tensors) {
            if (!is_sparse(tensor) || !stays(tensor)) {
                continue;
            }
            visit_components(tensor, [&](const at::TensorBase &part) {
                ml_found_storage *storage = storage_of(*part.unsafeGetTensorImpl());
                if (storage != nullptr && storage->what != ml_fate::stays) {
                    storage->what = ml_fate::stays;
                    changed = true;
                }
            });
        }
    }
}

/* Bytes of the blocks that stay, by reason. */
void
ml_reach::count_blocks(ml_left &left) const
{
    std::unordered_set<const ml_live_block *> moving;
    for (const ml_found_storage &storage : storages) {
        if (storage.what == ml_fate::moves) {
            moving.insert(storage.block);
        }
    }
    for (const auto &[addr, block] : blocks) {
        if (!block.is_public) {
            left.private_pool += block.bytes;
        }
        else if (moving.count(&block) == 0) {
            (block.owned || block.lent ? left.shared : left.unreached) += block.bytes;
        }
    }
}

void
ml_reach::decide(ml_left &left)
{
    find_blocks();
    match();
    decide_each(left);
    keep_parts_together();
    count_blocks(left);
}

/* Whether TENSOR becomes a CPU tensor; all storages are decided.  A tensor with neither
 * storage nor sparse parts, as within vmap, follows the tensor that it wraps. */
bool
ml_reach::moves(const at::TensorBase &tensor)
{
    TensorImpl *impl = tensor.unsafeGetTensorImpl();
    return (is_sparse(tensor) || ml_tensor_fields::storage(*impl)) && !stays(tensor);
}

size_t
ml_reach::moving_bytes() const
{
    size_t bytes = 0;
    for (const ml_found_storage &storage : storages) {
        bytes += storage.what == ml_fate::moves ? storage.cuda->nbytes() : 0;
    }
    return bytes;
}
