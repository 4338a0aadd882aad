/* Owns the move of CUDA tensors' memory to the host and back, and the tensors that are
 * CPU tensors meanwhile.  reach.cpp chooses them; transfer.cpp copies bytes.
 *
 * A moved storage has two StorageImpls.  The device's keeps its identity and gives up
 * its memory.  C++ that holds it, such as autograd's saved tensors, finds it intact
 * after the return.  Until then an access to its data is an error, not a wild pointer.
 * The host's has the contents; tensors that Python reaches use it meanwhile.
 *
 * In a tensor, three fields change: storage, device and dispatch keys.  Everything else
 * stays: sizes, version, autograd, hooks, names, its Python object.
 * TensorImpl::shallow_copy_from would reset these.  `.data =` would drop the gradient
 * accumulator, and DDP's hooks would never run again.
 *
 * This file keeps no tensor or storage alive.  The device's storages hold the host's,
 * by the context of their DataPtr; all other references are weak. */
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "bridge.h"
#include "objects/graph.h"
#include "objects/reach.h"
#include "objects/saved.h"
#include "objects/tensor_fields.h"
#include "objects/transfer.h"

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

using c10::StorageImpl;
using c10::TensorImpl;
using owned_storage = c10::intrusive_ptr<StorageImpl>;
using weak_storage = c10::weak_intrusive_ptr<StorageImpl>;
using weak_tensor = c10::weak_intrusive_ptr<TensorImpl, c10::UndefinedTensorImpl>;

constexpr const char *yielded_text =
    "memlab.Courtesy has given the memory of this CUDA tensor back, and the CPU "
    "tensors that stand for it do not reach what C++ holds, such as what autograd "
    "saved: call "
    "restore() first";

/* Host storages up to this size share pages, so that many small ones cost only their
 * bytes.  Dead ones keep their pages until the others on the same pages die. */
constexpr size_t shared_pages_bytes = size_t{32} << 20;
constexpr size_t alignment = 64;

thread_local std::string failure;

int
fail(int error, std::string text) noexcept
{
    failure = std::move(text);
    return error;
}

/* StorageImpl sets this and never clears it.  An explicit instantiation may name a
 * private member. */
bool &throws_on_access(StorageImpl &storage);
template <bool StorageImpl::*Member> struct opened {
    friend bool &throws_on_access(StorageImpl &storage)
    {
        return storage.*Member;
    }
};
template struct opened<&StorageImpl::throw_on_immutable_data_ptr_>;

/* Only newer versions of c10::Storage have this constructor. */
owned_storage
make_storage(c10::SymInt bytes, at::DataPtr data, c10::Allocator *allocator,
             bool resizable)
{
    return c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(),
                                            std::move(bytes), std::move(data),
                                            allocator, resizable);
}

/* Makes TENSOR one of DEVICE with the contents of STORAGE; if undefined, it keeps its
 * own. */
void
become(TensorImpl &tensor, const c10::Storage &storage, c10::Device device)
{
    if (storage) {
        ml_tensor_fields::storage(tensor) = storage;
    }
    ml_tensor_fields::device(tensor) = device;
    tensor._change_backend_component_keys(device);
}

bool
is_native()
{
    return caching::get()->name() == "native";
}

/* ---- Host memory ---- */

struct host_owner {
    std::shared_ptr<ml_pages> pages;

    static void drop(void *context)
    {
        delete static_cast<host_owner *>(context);
    }
};

/* Memory for one storage after the other. */
struct host_room {
    std::shared_ptr<ml_pages> pages;
    size_t used = 0;

    at::DataPtr take(size_t bytes)
    {
        if (pages == nullptr || pages->bytes - used < bytes) {
            pages = std::make_shared<ml_pages>(std::max(bytes, shared_pages_bytes));
            used = 0;
        }
        char *at = pages->data + used;
        used = std::min(pages->bytes,
                        used + (bytes + alignment - 1) / alignment * alignment);
        return {at, new host_owner{pages}, host_owner::drop, c10::DeviceType::CPU};
    }
};

/* ---- What is yielded ---- */

} // namespace

struct ml_yielded {
    struct moved_tensor {
        weak_tensor tensor;
        c10::Device device;
        std::shared_ptr<const ml_accumulator> accumulator; /* before; NULL: none */
    };

    struct moved_storage {
        weak_storage cuda;
        weak_storage host;
        c10::Device device;
        uint64_t stream;
        bool resizable;
        bool had_data; /* so its data throws */
    };

    std::vector<moved_tensor> tensors;
    std::vector<moved_storage> storages;
    uint64_t bytes = 0; /* of the blocks given back */
};

namespace {

using moved_tensor = ml_yielded::moved_tensor;
using moved_storage = ml_yielded::moved_storage;

/* Host memory that numpy points into: kept as long as numpy's tensor. */
struct kept_memory {
    weak_tensor tensor;
    c10::Storage host;
};

std::vector<kept_memory> &
kept()
{
    static auto *all = new std::vector<kept_memory>; /* outlives exit; with the GIL */
    return *all;
}

void
drop_kept()
{
    std::vector<kept_memory> &all = kept();
    size_t count = 0;
    for (kept_memory &one : all) {
        if (!one.tensor.expired()) {
            std::swap(all[count++], one);
        }
    }
    all.erase(all.begin() + static_cast<ptrdiff_t>(count), all.end());
}

/* The device's storage holds the host's. */
struct stand_in {
    c10::Storage host;

    static void drop(void *context)
    {
        delete static_cast<stand_in *>(context);
    }
};

/* The host's half of STORAGE, and its memory. */
void
make_host(ml_found_storage &storage, host_room &room)
{
    const c10::SymInt bytes = storage.cuda->sym_nbytes();
    at::DataPtr data(nullptr, c10::DeviceType::CPU);
    if (storage.what == ml_fate::moves && storage.cuda->nbytes() > 0) {
        data = room.take(storage.cuda->nbytes());
    }
    storage.host = make_storage(bytes, std::move(data), c10::GetCPUAllocator(),
                                storage.cuda->resizable());
}

void
copy_to_host(ml_reach &found, uint64_t host_left)
{
    std::vector<ml_stretch> stretches;
    const size_t total = found.moving_bytes();
    if (total > host_left) {
        throw std::runtime_error("the host has " + std::to_string(host_left) +
                                 " bytes of memory left and " + std::to_string(total) +
                                 " are needed");
    }
    host_room room;
    for (ml_found_storage &storage : found.storages) {
        if (storage.what == ml_fate::stays) {
            continue;
        }
        make_host(storage, room);
        const size_t bytes =
            storage.what == ml_fate::moves ? storage.cuda->nbytes() : 0;
        if (bytes > 0) {
            stretches.push_back({ml_storage_data(*storage.cuda).get(),
                                 storage.host.mutable_data(), bytes,
                                 storage.device.index()});
        }
    }
    ml_transfer_to_host(stretches);
}

/* Everything that the commit needs, made beforehand because making it can fail. */
struct plan {
    std::unique_ptr<ml_yielded> yielded = std::make_unique<ml_yielded>();
    std::vector<std::unique_ptr<stand_in>> stand_ins;
    std::vector<std::string> texts;
    std::vector<at::TensorBase> tensors;
};

plan
make_plan(ml_reach &found)
{
    plan made;
    for (ml_found_storage &storage : found.storages) {
        if (storage.what == ml_fate::stays) {
            continue;
        }
        made.stand_ins.push_back(std::make_unique<stand_in>(stand_in{storage.host}));
        made.texts.emplace_back(yielded_text);
        storage.cuda->get_extra_meta();
        made.yielded->storages.push_back(
            {weak_storage(storage.cuda), weak_storage(ml_own_storage(storage.host)),
             storage.device, storage.block != nullptr ? storage.block->stream : 0,
             storage.cuda->resizable(), storage.what == ml_fate::moves});
        made.yielded->bytes += storage.block != nullptr ? storage.block->bytes : 0;
    }
    for (const at::TensorBase &tensor : found.tensors) {
        if (!found.moves(tensor)) {
            continue;
        }
        made.yielded->tensors.push_back(
            {weak_tensor(tensor.getIntrusivePtr()),
             *ml_tensor_fields::device(*tensor.unsafeGetTensorImpl()),
             ml_accumulator_of(tensor)});
        made.tensors.push_back(tensor);
    }
    return made;
}

void
commit_to_host(ml_reach &found, plan &made) noexcept
{
    for (const at::TensorBase &tensor : made.tensors) {
        TensorImpl &impl = *tensor.unsafeGetTensorImpl();
        const ml_found_storage *storage = found.storage_of(impl);
        become(impl, storage != nullptr ? storage->host : c10::Storage(),
               c10::DeviceType::CPU);
    }
    for (const at::TensorBase &tensor : made.tensors) {
        ml_accumulator_follow(tensor, nullptr);
    }
    size_t at = 0;
    for (ml_found_storage &storage : found.storages) {
        if (storage.what == ml_fate::stays) {
            continue;
        }
        const bool had_data = storage.what == ml_fate::moves;
        storage.cuda->set_data_ptr_noswap(at::DataPtr(
            nullptr, made.stand_ins[at].release(), stand_in::drop, storage.device));
        if (had_data) {
            storage.cuda->release_data_and_set_meta_custom_data_ptr_error_msg_(
                std::move(made.texts[at]));
        }
        at++;
    }
}

/* Runs CALL, which returns 0 or a negative error; turns exceptions into errors that
 * begin with WHAT. */
template <class Call>
int
guarded(const char *what, const char *remedy, const Call &call) noexcept
{
    try {
        try {
            return call();
        }
        catch (const c10::Error &error) {
            return fail(ML_ESOURCE,
                        std::string(what) + error.what_without_backtrace() + remedy);
        }
        catch (const std::bad_alloc &) {
            return fail(ML_ESOURCE,
                        std::string(what) + "the host is out of memory" + remedy);
        }
        catch (const std::exception &error) {
            return fail(ML_ESOURCE, std::string(what) + error.what() + remedy);
        }
    }
    catch (...) {
        failure.clear();
        return ML_ENOMEM;
    }
}

/* Devices with memory of torch's allocator: others may have no context. */
void
wait_for_devices()
{
    if (!caching::get()->initialized() || !is_native()) {
        return;
    }
    for (c10::DeviceIndex i = 0; i < c10::cuda::device_count(); i++) {
        if (caching::getDeviceStats(i).reserved_bytes[0].current > 0) {
            const c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, i));
            c10::cuda::device_synchronize();
        }
    }
}

int
synchronize() noexcept
{
    return guarded("memlab cannot wait for the GPU: ", "", [] {
        wait_for_devices();
        return 0;
    });
}

void
find_all(const ml_objects *objects, ml_reach &found)
{
    for (size_t i = 0; i < objects->tensor_count; i++) {
        found.add_tensor(ml_tensor_of(objects->tensors[i]));
    }
    /* C++ tensors keep their storage, which is intact again after the return. */
    ml_saved_visit(objects->tensors, objects->tensor_count, [&](StorageImpl *saved) {
        found.add_storage(c10::Storage(owned_storage::reclaim_copy(saved)));
    });
    for (size_t i = 0; i < objects->storage_count; i++) {
        found.add_storage(ml_storage_of(objects->storages[i]));
    }
}

int
yield(const ml_objects *objects, uint64_t host_left, ml_yielded **out, uint64_t *bytes,
      ml_left *left) noexcept
{
    return guarded(
        "memlab cannot give the GPU's memory back: ", "; everything is as before", [&] {
            drop_kept();
            ml_reach found;
            ml_left staying{};
            find_all(objects, found);
            wait_for_devices();
            found.decide(staying);
            copy_to_host(found, host_left);
            plan made = make_plan(found);
            commit_to_host(found, made);
            *bytes = made.yielded->bytes;
            *left = staying;
            *out = made.yielded.release();
            return 0;
        });
}

/* When yield() ends, the blocks are free. */
int
empty_cache() noexcept
{
    return guarded("memlab cannot empty torch's cache: ", "", [] {
        if (is_native()) {
            caching::emptyCache();
        }
        return 0;
    });
}

/* ---- The way back ---- */

struct target {
    c10::Storage host;
    owned_storage cuda; /* NULL: no references left */
    c10::Device device;
    uint64_t stream;
    bool resizable;
    bool throws; /* on access to its data */
    at::DataPtr data;
    bool wanted; /* by a tensor, or by a holder of the device's storage */
};

struct returning {
    std::vector<target> targets;
    std::unordered_map<StorageImpl *, size_t> index; /* by the host's storage */
    struct one {
        at::TensorBase tensor;
        c10::Device device;
        const moved_tensor *before;
    };
    std::vector<one> tensors;
    std::unordered_set<TensorImpl *> seen;

    void add_storage(const moved_storage &storage)
    {
        const owned_storage host = storage.host.lock();
        if (host != nullptr) {
            index.emplace(host.get(), targets.size());
            owned_storage cuda = storage.cuda.lock();
            const bool wanted = cuda != nullptr;
            targets.push_back({c10::Storage(host), std::move(cuda), storage.device,
                               storage.stream, storage.resizable, storage.had_data,
                               at::DataPtr(), wanted});
        }
    }
    /* Adds TENSOR and its parts.  A tensor that became a CPU tensor meanwhile, such as
     * a new gradient, moves too. */
    void add_tensor(const at::TensorBase &tensor, c10::Device device,
                    const moved_tensor *before)
    {
        if (!tensor.defined()) {
            return;
        }
        TensorImpl &impl = *tensor.unsafeGetTensorImpl();
        if (!ml_is_on(impl, c10::DeviceType::CPU) || !seen.insert(&impl).second) {
            return;
        }
        const c10::Storage &storage = ml_tensor_fields::storage(impl);
        if (storage) {
            const auto added =
                index.emplace(storage.unsafeGetStorageImpl(), targets.size());
            if (added.second) {
                targets.push_back({storage, nullptr, device, 0, storage.resizable(),
                                   false, at::DataPtr(), true});
            }
            targets[added.first->second].wanted = true;
        }
        tensors.push_back({tensor, device, before});
        ml_visit_parts(tensor, [&](const at::TensorBase &part) {
            add_tensor(part, device, nullptr);
        });
    }
};

/* Allocates device memory for all targets; throws torch's own error if there is
 * none. */
void
allocate(returning &back)
{
    for (target &to : back.targets) {
        to.data = at::DataPtr(nullptr, to.device);
        if (to.wanted && to.host.data() != nullptr && to.host.nbytes() > 0) {
            const c10::DeviceGuard guard(to.device);
            void *data = caching::raw_alloc_with_stream(
                to.host.nbytes(), reinterpret_cast<cudaStream_t>(to.stream));
            to.data = at::DataPtr(data, data, caching::get()->raw_deleter(), to.device);
        }
    }
}

void
copy_to_device(const returning &back)
{
    std::vector<ml_stretch> stretches;
    for (const target &to : back.targets) {
        if (to.data.get() != nullptr) {
            stretches.push_back({to.data.get(), const_cast<void *>(to.host.data()),
                                 to.host.nbytes(), to.device.index()});
        }
    }
    ml_transfer_to_device(stretches);
}

/* Prepares the commit: device storages without references, and room for memory that
 * numpy points into. */
void
prepare(returning &back)
{
    for (target &to : back.targets) {
        if (to.cuda == nullptr && to.wanted) {
            to.cuda =
                make_storage(to.host.sym_nbytes(), at::DataPtr(nullptr, to.device),
                             caching::get(), to.resizable);
        }
    }
    kept().reserve(kept().size() + back.tensors.size());
}

void
commit_to_device(returning &back) noexcept
{
    for (const returning::one &one : back.tensors) {
        TensorImpl &impl = *one.tensor.unsafeGetTensorImpl();
        const c10::Storage &storage = ml_tensor_fields::storage(impl);
        c10::Storage cuda;
        if (storage) {
            const target &to = back.targets[back.index[storage.unsafeGetStorageImpl()]];
            cuda = c10::Storage(to.cuda);
            /* torch fixes the size of a storage that numpy points into. */
            if (to.resizable && !to.host.resizable()) {
                kept().push_back({weak_tensor(one.tensor.getIntrusivePtr()), to.host});
            }
        }
        become(impl, cuda, one.device);
    }
    for (target &to : back.targets) {
        if (to.cuda == nullptr) {
            continue;
        }
        if (to.throws) {
            throws_on_access(*to.cuda) = false;
        }
        to.cuda->set_nbytes(to.host.sym_nbytes());
        to.cuda->set_data_ptr_noswap(std::move(to.data));
    }
    for (const returning::one &one : back.tensors) {
        ml_accumulator_follow(one.tensor, one.before != nullptr
                                              ? one.before->accumulator.get()
                                              : nullptr);
    }
}

int
restore(ml_yielded *yielded) noexcept
{
    return guarded("memlab cannot take the GPU's memory again: ",
                   "; nothing is lost: free memory of the GPU and call restore() again",
                   [&] {
                       wait_for_devices();
                       returning back;
                       for (const moved_storage &storage : yielded->storages) {
                           back.add_storage(storage);
                       }
                       for (const moved_tensor &moved : yielded->tensors) {
                           const at::TensorBase tensor(moved.tensor.lock());
                           back.add_tensor(tensor, moved.device, &moved);
                       }
                       allocate(back);
                       copy_to_device(back);
                       prepare(back);
                       commit_to_device(back);
                       yielded->tensors.clear();
                       yielded->storages.clear();
                       return 0;
                   });
}

void
free_yielded(ml_yielded *yielded) noexcept
{
    delete yielded;
}

const char *
error() noexcept
{
    return failure.empty() ? nullptr : failure.c_str();
}

const ml_storages storages_table = {
    sizeof(ml_storages), ML_ABI_VERSION, synchronize,  yield,
    empty_cache,         restore,        free_yielded, error};

} // namespace

const ml_storages *
ml_storages_table(void)
{
    return &storages_table;
}
