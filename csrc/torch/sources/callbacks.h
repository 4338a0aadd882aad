/* memlab's turns at torch's lists of callbacks.  See callbacks.cpp. */
#ifndef ML_TORCH_CALLBACKS_H
#define ML_TORCH_CALLBACKS_H

namespace memlab::callbacks {

/* Held while memlab changes the calling thread's list: no fork comes meanwhile.  Takes no
 * lock but torch's, no GIL. */
class Change {
  public:
    Change();
    Change(const Change &) = delete;
    Change &operator=(const Change &) = delete;
    ~Change();
};

/* The same for the list of all threads. */
class ChangeForAll : public Change {
  public:
    ChangeForAll();
};

/* On a thread that is about to fork; then in the parent, or in the child. */
void before_fork();
void after_fork();
void forked();
/* Whether this is a child of a process that had changed the list of all threads. */
bool inherited();

} // namespace memlab::callbacks

#endif
