/* Copies between devices and host memory, and the host memory they need.
 *
 * Owns pages of the host and how they are filled and read at the rate of the bus; what
 * the bytes are it must not know.  C++; throws std::exception. */
#ifndef ML_TRANSFER_H
#define ML_TRANSFER_H

#include <cstddef>
#include <memory>
#include <vector>

/* One stretch of memory that is copied as a whole. */
struct ml_stretch {
    void *device_data;
    void *host_data;
    size_t bytes;
    int device; /* index */
};

/* Anonymous memory of the host in pages of its own: given back to the system as the last
 * reference goes. */
class ml_pages {
  public:
    explicit ml_pages(size_t bytes);
    ~ml_pages();
    ml_pages(const ml_pages &) = delete;
    ml_pages &operator=(const ml_pages &) = delete;

    char *const data;
    const size_t bytes;
};

/* Copies all of STRETCHES and returns when they are there.  Work on the devices that was
 * queued before must be done. */
void ml_transfer_to_host(const std::vector<ml_stretch> &stretches);
void ml_transfer_to_device(const std::vector<ml_stretch> &stretches);

#endif
