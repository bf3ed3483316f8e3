// The communicator of a group whose values NCCL moves between GPUs, and the CUDA bodies of its collectives.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/op.h"
#include "ir/agreement.h"
#include "ranks/nccl_api.h"
#include "ranks/voters.h"

namespace graphsink {

// One rank of a communicator, on one GPU. Its collectives are given to streams by one thread at a time.
class NcclComm {
 public:
  // Waits for all ranks. Throws Error if NCCL refuses.
  NcclComm(const NcclApi& nccl, int device, int ranks, int rank, const NcclId& id, const Where& where);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  const NcclApi& api() const { return nccl_; }
  NcclHandle* handle() const { return handle_; }
  int device() const { return device_; }
  // From then on no step commits that exchanges anything by this communicator. Any thread may call it.
  void give_up() { std::atomic_ref(*given_up_).store(1, std::memory_order_release); }
  // See RankWait.
  const std::uint32_t* given_up() const { return given_up_; }
  // Ends collectives that are under way, with anything as their results. There must be none from then on. Any thread
  // may call it, more than once.
  void abort();
  bool is_aborted() const { return is_aborted_; }

 private:
  const NcclApi& nccl_;
  NcclHandle* handle_ = nullptr;
  const int device_;
  std::uint32_t* given_up_ = nullptr;
  std::atomic<bool> is_aborted_ = false;
};

// The node of the op by which ranks agree, on a device: how long it waits for the others.
std::shared_ptr<const RankWait> nccl_wait(const Agreement& agreement, const Voters& voters);
// The communicator of the ranks that agree, and those of the other groups. Precondition: nccl_wait() has made the
// argument.
const NcclComm& comm_of(const RankWait& wait);
std::vector<const NcclComm*> further_comms_of(const RankWait& wait);

// A communicator for all ranks of a group, which call it together. Throws Error if NCCL refuses.
void add_nccl(RankGroup& group, const NcclApi& nccl, int device, const Where& where);

// For OpDef::prepare. Throws Error if the program runs on another device than the communicator.
Prepared prepare_nccl(const PrepareArgs& p);

#ifdef GRAPHSINK_CUDA
// The CUDA bodies of the collectives, whose attributes are CollectiveAttrs of a group with a communicator.
void nccl_all_reduce(CudaArgs& a);
void nccl_all_gather(CudaArgs& a);
void nccl_reduce_scatter(CudaArgs& a);
void nccl_broadcast(CudaArgs& a);
void nccl_all_to_all(CudaArgs& a);
void nccl_send_receive(CudaArgs& a);
// The CUDA body of the op by which ranks agree: gathers the step blocks of all ranks.
void nccl_agree(CudaArgs& a);
#endif

}  // namespace graphsink
