/* Copies between devices and host memory, and the host memory for them.
 *
 * Owns host pages, and how they are filled and read at the bus's rate.  C++; throws
 * std::exception. */
#ifndef ML_TRANSFER_H
#define ML_TRANSFER_H

#include <cstddef>
#include <memory>
#include <vector>

/* A range of memory that is copied as a whole. */
struct ml_stretch {
    void *device_data;
    void *host_data;
    size_t bytes;
    int device; /* index */
};

/* Anonymous host memory in pages of its own: given back to the system with the last
 * reference. */
class ml_pages {
  public:
    explicit ml_pages(size_t bytes);
    ~ml_pages();
    ml_pages(const ml_pages &) = delete;
    ml_pages &operator=(const ml_pages &) = delete;

    char *const data;
    const size_t bytes;
};

/* Copies all of STRETCHES; returns when they are complete.  Earlier work queued on the
 * devices must be done. */
void ml_transfer_to_host(const std::vector<ml_stretch> &stretches);
void ml_transfer_to_device(const std::vector<ml_stretch> &stretches);

#endif
