/* Owns memlab's turns at torch's lists of callbacks: that of all threads, and each
 * thread's own.
 *
 * torch has one lock for them, which a thread takes to change a list, or to copy that of
 * all threads once it has changed.  If another thread forks meanwhile, the lock stays
 * taken in the child, where the next to need it would wait for ever.  torch changes them
 * rarely, memlab at every region: so a fork waits for memlab's changes.
 *
 * The allocator's callback must never reach this file, as it takes locks. */
#include "sources/callbacks.h"

#include <atomic>
#include <mutex>

#include <ATen/record_function.h>

namespace memlab::callbacks {

namespace {

std::mutex lock;
/* The list of all threads: memlab has changed it, or the parent had. */
std::atomic<bool> changed{false};
std::atomic<bool> changed_by_parent{false};

} // namespace

Change::Change()
{
    lock.lock();
}

Change::~Change()
{
    lock.unlock();
}

ChangeForAll::ChangeForAll()
{
    changed.store(true, std::memory_order_relaxed);
}

/* After a change for all, each thread copies the list in its next operator.  In a child
 * that may be too late, as a thread of torch's own may have had the lock. */
void
before_fork()
{
    lock.lock();
    if (changed.load(std::memory_order_relaxed) && !inherited()) {
        try {
            static_cast<void>(
                at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE));
        }
        catch (...) {
            /* No memory: the child copies the list itself. */
        }
    }
}

void
after_fork()
{
    lock.unlock();
}

void
forked()
{
    lock.unlock();
    if (changed.load(std::memory_order_relaxed)) {
        changed_by_parent.store(true, std::memory_order_relaxed);
    }
}

bool
inherited()
{
    return changed_by_parent.load(std::memory_order_relaxed);
}

} // namespace memlab::callbacks
