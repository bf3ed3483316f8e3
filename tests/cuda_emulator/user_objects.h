// User objects: what a program gives to graphs so that it lives as long as these may use it. References are counted,
// and when none is left, a thread of the device calls the object's destructor. As on a GPU no call waits for that.
#pragma once

#include <cuda_runtime.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_set>

struct CUuserObject_st {
  void* data;
  cudaHostFn_t destroy;
  std::size_t references;
};

namespace emu {

// May be used with the runtime's lock and without it.
class UserObjects {
 public:
  cudaUserObject_t create(void* data, cudaHostFn_t destroy, unsigned references);
  // False, without doing anything, where the handle is of no live object, or would have less than no references.
  bool retain(cudaUserObject_t object, std::size_t count);
  bool release(cudaUserObject_t object, std::size_t count);
  // Objects with a reference. Returns after all destructors that are due; without the runtime's lock.
  std::size_t count_after_destructors();
  void stop_thread();

 private:
  void thread_main();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<cudaUserObject_t> live_;
  std::deque<cudaUserObject_t> due_;
  bool is_destroying_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

// The references that one graph or one plan owns. A copy owns as many references of its own.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences& other);
  UserReferences& operator=(UserReferences other);
  ~UserReferences();
  // Owns references that somebody else has owned until now.
  void take(cudaUserObject_t object, std::size_t count) { counts_[object] += count; }
  // False, without doing anything, where it owns fewer.
  bool release(cudaUserObject_t object, std::size_t count);

 private:
  std::map<cudaUserObject_t, std::size_t> counts_;
};

}  // namespace emu
