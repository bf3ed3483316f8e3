#include "user_objects.h"

#include <climits>
#include <cstdlib>
#include <utility>

#include "protection.h"
#include "runtime.h"

namespace emu {

cudaUserObject_t UserObjects::create(void* data, cudaHostFn_t destroy, unsigned references) {
  const std::lock_guard guard(mutex_);
  return *live_.insert(new CUuserObject_st{data, destroy, references}).first;
}

bool UserObjects::retain(cudaUserObject_t object, std::size_t count) {
  const std::lock_guard guard(mutex_);
  if (!live_.contains(object)) return false;
  object->references += count;
  return true;
}

bool UserObjects::release(cudaUserObject_t object, std::size_t count) {
  const std::lock_guard guard(mutex_);
  if (!live_.contains(object) || object->references < count) return false;
  object->references -= count;
  if (object->references > 0) return true;
  live_.erase(object);
  due_.push_back(object);
  if (!thread_.joinable() && !stopping_) {
    thread_ = std::thread([this] { thread_main(); });
    std::atexit([] { runtime().user_objects.stop_thread(); });
  }
  changed_.notify_all();
  return true;
}

std::size_t UserObjects::count_after_destructors() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || (due_.empty() && !is_destroying_); });
  return live_.size();
}

void UserObjects::thread_main() {
  forbid_cuda_on_this_thread();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !due_.empty(); });
    if (due_.empty()) return;
    const cudaUserObject_t object = due_.front();
    due_.pop_front();
    is_destroying_ = true;
    lock.unlock();
    close_device_memory();
    object->destroy(object->data);
    delete object;
    lock.lock();
    is_destroying_ = false;
    changed_.notify_all();
  }
}

// Objects whose last reference goes later are the process's to clean up.
void UserObjects::stop_thread() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

UserReferences::UserReferences(const UserReferences& other) : counts_(other.counts_) {
  for (const auto& [object, count] : counts_) runtime().user_objects.retain(object, count);
}

UserReferences& UserReferences::operator=(UserReferences other) {
  std::swap(counts_, other.counts_);
  return *this;
}

UserReferences::~UserReferences() {
  for (const auto& [object, count] : counts_) runtime().user_objects.release(object, count);
}

bool UserReferences::release(cudaUserObject_t object, std::size_t count) {
  const auto owned = counts_.find(object);
  if (owned == counts_.end() || owned->second < count) return false;
  owned->second -= count;
  if (owned->second == 0) counts_.erase(owned);
  return runtime().user_objects.release(object, count);
}

namespace {

bool is_count(unsigned count) { return count > 0 && count <= INT_MAX; }

cudaError_t valid_if(bool done) { return done ? cudaSuccess : cudaErrorInvalidValue; }

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;
using emu::When;

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy, unsigned count,
                                 unsigned flags) {
  return api("cudaUserObjectCreate", [&](Runtime& r, Lock&) -> cudaError_t {
    if (object == nullptr || destroy == nullptr || !emu::is_count(count)) return cudaErrorInvalidValue;
    if (flags != cudaUserObjectNoDestructorSync) return cudaErrorInvalidValue;
    *object = r.user_objects.create(data, destroy, count);
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
  return api("cudaUserObjectRetain", [&](Runtime& r, Lock&) {
    return emu::valid_if(emu::is_count(count) && r.user_objects.retain(object, count));
  });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return api("cudaUserObjectRelease", When::kAlways, [&](Runtime& r, Lock&) {
    return emu::valid_if(emu::is_count(count) && r.user_objects.release(object, count));
  });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  return api("cudaGraphRetainUserObject", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph) || !emu::is_count(count)) return cudaErrorInvalidValue;
    if ((flags & ~static_cast<unsigned>(cudaGraphUserObjectMove)) != 0) return cudaErrorInvalidValue;
    const bool is_moved = flags == cudaGraphUserObjectMove;
    if (!r.user_objects.retain(object, is_moved ? 0 : count)) return cudaErrorInvalidValue;
    graph->user_references.take(object, count);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
  return api("cudaGraphReleaseUserObject", When::kAlways, [&](Runtime& r, Lock&) {
    return emu::valid_if(r.graphs.contains(graph) && emu::is_count(count) &&
                         graph->user_references.release(object, count));
  });
}
