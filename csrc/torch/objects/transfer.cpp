/* See transfer.h. */
#include "objects/transfer.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <exception>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

/* The library comes with torch; if it is missing, the bridge must still load. */
#pragma weak cudaEventCreateWithFlags
#pragma weak cudaEventDestroy
#pragma weak cudaEventRecord
#pragma weak cudaEventSynchronize
#pragma weak cudaFreeHost
#pragma weak cudaGetLastError
#pragma weak cudaHostAlloc
#pragma weak cudaMemcpyAsync
#pragma weak cudaStreamCreateWithFlags
#pragma weak cudaStreamDestroy
#pragma weak cudaStreamSynchronize

namespace {

/* Measured on an H200 with 16 cores, whose bus copies 55 GB/s to pinned memory.  The
 * system pins and unpins 28 to 42 GB/s, and gives fresh pages at 10 to 23 GB/s.
 * Pinning the destination, whole or in pieces of 32 and 128 MiB, gave 6 to 28 GB/s.
 * Small pinned slots with many threads, which take fresh pages as they copy, gave 37
 * GB/s from the device and 49 to it, with slots of 2 MiB.  Larger slots take longer to
 * pin than they save; smaller ones cost more calls (27 and 38 GB/s with 1 MiB).  The
 * host's copy is then ordinary memory. */
constexpr size_t slot_bytes = size_t{2} << 20;
constexpr size_t threads_most = 16;
/* From this many slots on, another thread is worth its start. */
constexpr size_t units_per_thread = 8;

char *
map_pages(size_t bytes)
{
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        throw std::bad_alloc();
    }
    /* Faults of 4 KiB pages would cost more than the copy.  If the system has no large
     * pages, small ones do. */
    madvise(at, bytes, MADV_HUGEPAGE);
    return static_cast<char *>(at);
}

/* ---- Copies ---- */

void
check(cudaError_t error)
{
    C10_CUDA_CHECK(error);
}

/* A piece of a stretch that shares a slot with others. */
struct part {
    char *device_data;
    char *host_data;
    size_t bytes;
};

/* Parts that fill one slot. */
struct unit {
    size_t first, last;
};

/* The work of all threads on one device. */
struct job {
    job(int device_index, bool towards_host)
        : device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device_index)),
          to_host(towards_host)
    {
    }

    const c10::Device device;
    const bool to_host;
    std::vector<part> parts;
    std::vector<unit> units;
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error; /* of the thread that set failed first */

    const unit *take()
    {
        const size_t at = failed.load() ? units.size() : next.fetch_add(1);
        return at < units.size() ? &units[at] : nullptr;
    }
};

void
split(job &work, const std::vector<ml_stretch> &stretches)
{
    size_t room = 0;
    for (const ml_stretch &stretch : stretches) {
        if (stretch.device != work.device.index()) {
            continue;
        }
        for (size_t done = 0; done < stretch.bytes;) {
            if (room == 0) {
                work.units.push_back({work.parts.size(), work.parts.size()});
                room = slot_bytes;
            }
            const size_t bytes = std::min(stretch.bytes - done, room);
            work.parts.push_back({static_cast<char *>(stretch.device_data) + done,
                                  static_cast<char *>(stretch.host_data) + done,
                                  bytes});
            work.units.back().last++;
            done += bytes;
            room -= bytes;
        }
    }
}

/* Memory that the device accesses without a copy by the driver.  If none can be pinned,
 * ordinary memory, which is only slower. */
class staging {
  public:
    explicit staging(size_t bytes)
    {
        if (cudaHostAlloc(reinterpret_cast<void **>(&data), bytes,
                          cudaHostAllocPortable) != cudaSuccess) {
            cudaGetLastError();
            unpinned = std::make_unique<char[]>(bytes);
            data = unpinned.get();
        }
    }
    ~staging()
    {
        if (unpinned == nullptr) {
            cudaFreeHost(data);
        }
    }
    staging(const staging &) = delete;
    staging &operator=(const staging &) = delete;

    char *data = nullptr;

  private:
    std::unique_ptr<char[]> unpinned;
};

/* One thread's stream, and two slots: the device copies one while the thread copies the
 * other. */
class lane {
  public:
    lane(job &of, char *slots) : work(of), slot{slots, slots + slot_bytes}
    {
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (cudaEvent_t &event : done) {
            check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        }
    }
    ~lane()
    {
        /* Even after a failure, no copy may be in progress when the slots are freed. */
        cudaStreamSynchronize(stream);
        for (cudaEvent_t event : done) {
            cudaEventDestroy(event);
        }
        cudaStreamDestroy(stream);
    }
    lane(const lane &) = delete;
    lane &operator=(const lane &) = delete;

    void to_host()
    {
        const unit *flying = nullptr; /* in the other slot */
        int k = 0;
        do {
            const unit *next = work.take();
            start(next, k);
            finish(flying, k ^ 1);
            flying = next;
            k ^= 1;
        } while (flying != nullptr);
    }
    void to_device()
    {
        const unit *flying[2] = {};
        int k = 0;
        while (const unit *next = work.take()) {
            finish(flying[k], k);
            start(next, k);
            flying[k] = next;
            k ^= 1;
        }
        check(cudaStreamSynchronize(stream));
    }

  private:
    template <class Use> void visit(const unit *of, char *at, const Use &use)
    {
        for (size_t i = of->first; i < of->last; i++) {
            use(work.parts[i], at);
            at += work.parts[i].bytes;
        }
    }
    void start(const unit *of, int k)
    {
        if (of == nullptr) {
            return;
        }
        visit(of, slot[k], [this](const part &piece, char *at) {
            if (work.to_host) {
                check(cudaMemcpyAsync(at, piece.device_data, piece.bytes,
                                      cudaMemcpyDeviceToHost, stream));
            }
            else {
                std::memcpy(at, piece.host_data, piece.bytes);
                check(cudaMemcpyAsync(piece.device_data, at, piece.bytes,
                                      cudaMemcpyHostToDevice, stream));
            }
        });
        check(cudaEventRecord(done[k], stream));
    }
    void finish(const unit *of, int k)
    {
        if (of == nullptr) {
            return;
        }
        check(cudaEventSynchronize(done[k]));
        if (work.to_host) {
            visit(of, slot[k], [](const part &piece, const char *at) {
                std::memcpy(piece.host_data, at, piece.bytes);
            });
        }
    }

    job &work;
    char *slot[2];
    cudaStream_t stream = nullptr;
    cudaEvent_t done[2] = {};
};

void
run_lane(job &work, char *slots) noexcept
{
    try {
        const c10::DeviceGuard guard(work.device);
        lane mine(work, slots);
        work.to_host ? mine.to_host() : mine.to_device();
    }
    catch (...) {
        if (!work.failed.exchange(true)) {
            work.error = std::current_exception();
        }
    }
}

size_t
thread_count(const job &work)
{
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    const size_t useful = (work.units.size() + units_per_thread - 1) / units_per_thread;
    return std::min({cores, useful, threads_most});
}

/* Runs the lanes of WORK, one of them on this thread.  Fewer threads than wanted are
 * only slower. */
void
run(job &work)
{
    const size_t count = thread_count(work);
    const staging slots(count * 2 * slot_bytes);
    std::vector<std::thread> threads;
    sigset_t all, before;
    /* Signals, except faults, belong to the program's threads. */
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
        sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        for (size_t i = 1; i < count; i++) {
            threads.emplace_back(run_lane, std::ref(work),
                                 slots.data + i * 2 * slot_bytes);
        }
    }
    catch (const std::exception &) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    run_lane(work, slots.data);
    for (std::thread &thread : threads) {
        thread.join();
    }
    if (work.error != nullptr) {
        std::rethrow_exception(work.error);
    }
}

void
copy(const std::vector<ml_stretch> &stretches, bool to_host)
{
    std::set<int> devices;
    for (const ml_stretch &stretch : stretches) {
        devices.insert(stretch.device);
    }
    if (!devices.empty() && cudaMemcpyAsync == nullptr) {
        throw std::runtime_error(
            "this build of torch has its CUDA runtime inside, where memlab cannot call "
            "it; one with libcudart as a library of its own is needed");
    }
    for (const int index : devices) {
        job work(index, to_host);
        split(work, stretches);
        run(work);
    }
}

} // namespace

ml_pages::ml_pages(size_t wanted) : data(map_pages(wanted)), bytes(wanted)
{
}

ml_pages::~ml_pages()
{
    munmap(data, bytes);
}

void
ml_transfer_to_host(const std::vector<ml_stretch> &stretches)
{
    copy(stretches, true);
}

void
ml_transfer_to_device(const std::vector<ml_stretch> &stretches)
{
    copy(stretches, false);
}
