// The CUDA bodies of collectives, which give the exchange to NCCL.
#include <utility>

#ifdef GRAPHSINK_CUDA
#include <cuda_runtime_api.h>
#endif

#include "base/at.h"
#include "device/device.h"
#include "graphsink/cuda.h"
#include "ir/agreement.h"
#include "ir/step_state.h"
#include "ir/system_ops.h"
#include "ranks/collective.h"
#include "ranks/nccl_comm.h"

namespace graphsink {
Prepared prepare_nccl(const PrepareArgs& p) {
  const NcclComm& comm = *p.attrs.as<CollectiveAttrs>().group->nccl();
  const DeviceId& id = static_cast<const Device*>(p.device)->target().id;
  if (id.index == comm.device()) return {};
  throw Error(std::string(p.op), p.where,
              "the program runs on device " + std::to_string(id.index) + ", and the Comm was made for device " +
                  std::to_string(comm.device()),
              "compile it for that device, or give NcclOptions::device the number of the other one");
}

#ifdef GRAPHSINK_CUDA

namespace {

NcclType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return NcclType::f32;
    case DType::f64:
      return NcclType::f64;
    case DType::f16:
      return NcclType::f16;
    case DType::bf16:
      return NcclType::bf16;
    case DType::i32:
      return NcclType::i32;
    case DType::i64:
      return NcclType::i64;
    case DType::u8:
    case DType::boolean:
      break;
  }
  return NcclType::u8;
}

NcclReduction nccl_reduction(Reduction reduction) {
  if (reduction == Reduction::max) return NcclReduction::max;
  return reduction == Reduction::mean ? NcclReduction::mean : NcclReduction::sum;
}

constexpr const char* kNcclRemedy =
    "end the process, and start all ranks again from a checkpoint; NCCL prints more with NCCL_DEBUG=WARN";

// Throws Error, naming the op, for a call that failed.
void expect_nccl(const CudaArgs& a, const NcclComm& comm, const char* call, NcclResult result) {
  if (result == NcclResult::success) return;
  throw Error(std::string(bound_node(a).op->name), a.where(), nccl_problem(comm.api(), call, result, comm.handle()),
              kNcclRemedy, ErrorCode::device_lost);
}

// Calls a function of NCCL for the stream of the body.
template <class Function, class... A>
void call_nccl(const CudaArgs& a, const NcclComm& comm, const char* name, Function NcclApi::*function,
               const A&... arguments) {
  if (comm.is_aborted())
    throw Error(std::string(bound_node(a).op->name), a.where(), "a wait for another rank was given up before",
                kNcclRemedy, ErrorCode::device_lost);
  expect_nccl(a, comm, name, (comm.api().*function)(arguments..., comm.handle(), a.stream()));
}

// The communicator of a collective.
const NcclComm& comm_of(const CudaArgs& a) { return *a.attrs<CollectiveAttrs>().group->nccl(); }

// A group of calls, which NCCL makes one kernel.
class NcclCallGroup {
 public:
  explicit NcclCallGroup(const NcclApi& nccl) : nccl_(nccl) { (void)nccl_.group_start(); }
  ~NcclCallGroup() {
    if (!is_over_) (void)nccl_.group_end();
  }
  NcclCallGroup(const NcclCallGroup&) = delete;
  NcclCallGroup& operator=(const NcclCallGroup&) = delete;
  NcclResult end() {
    is_over_ = true;
    return nccl_.group_end();
  }

 private:
  const NcclApi& nccl_;
  bool is_over_ = false;
};

}  // namespace

void nccl_all_reduce(CudaArgs& a) {
  const auto count = static_cast<std::size_t>(a.in_type(0).shape.size());
  if (count == 0) return;
  call_nccl(a, comm_of(a), "ncclAllReduce", &NcclApi::all_reduce, a.in<void>(0), a.out<void>(0), count,
            nccl_type(a.in_type(0).dtype), nccl_reduction(a.attrs<CollectiveAttrs>().reduction));
  a.count_kernel();
}

void nccl_reduce_scatter(CudaArgs& a) {
  const auto count = static_cast<std::size_t>(a.out_type(0).shape.size());
  if (count == 0) return;
  call_nccl(a, comm_of(a), "ncclReduceScatter", &NcclApi::reduce_scatter, a.in<void>(0), a.out<void>(0), count,
            nccl_type(a.in_type(0).dtype), nccl_reduction(a.attrs<CollectiveAttrs>().reduction));
  a.count_kernel();
}

void nccl_all_gather(CudaArgs& a) {
  if (a.in_type(0).bytes() == 0) return;
  call_nccl(a, comm_of(a), "ncclAllGather", &NcclApi::all_gather, a.in<void>(0), a.out<void>(0), a.in_type(0).bytes(),
            NcclType::u8);
  a.count_kernel();
}

void nccl_broadcast(CudaArgs& a) {
  if (a.in_type(0).bytes() == 0) return;
  call_nccl(a, comm_of(a), "ncclBroadcast", &NcclApi::broadcast, a.in<void>(0), a.out<void>(0), a.in_type(0).bytes(),
            NcclType::u8, a.attrs<CollectiveAttrs>().root);
  a.count_kernel();
}

void nccl_all_to_all(CudaArgs& a) {
  const RankGroup& group = *a.attrs<CollectiveAttrs>().group;
  const std::size_t bytes = a.in_type(0).bytes() / at(group.size());
  if (bytes == 0) return;
  NcclCallGroup calls(comm_of(a).api());
  for (int peer = 0; peer < group.size(); ++peer) {
    const auto* sent = a.in<std::byte>(0) + at(peer) * bytes;
    call_nccl(a, comm_of(a), "ncclSend", &NcclApi::send, static_cast<const void*>(sent), bytes, NcclType::u8, peer);
    auto* received = a.out<std::byte>(0) + at(peer) * bytes;
    call_nccl(a, comm_of(a), "ncclRecv", &NcclApi::receive, static_cast<void*>(received), bytes, NcclType::u8, peer);
  }
  expect_nccl(a, comm_of(a), "ncclGroupEnd", calls.end());
  a.count_kernel();
}

void nccl_send_receive(CudaArgs& a) {
  const auto& attrs = a.attrs<CollectiveAttrs>();
  const RankGroup& group = *attrs.group;
  const std::size_t bytes = a.in_type(0).bytes();
  if (bytes == 0) return;
  const int from = attrs.sources[at(group.rank())], to = target_of(attrs.sources, group.rank());
  if (from < 0) check_cuda(cudaMemsetAsync(a.out<void>(0), 0, bytes, a.stream()), "cudaMemsetAsync", a);
  if (from < 0 && to < 0) return;
  NcclCallGroup calls(comm_of(a).api());
  if (to >= 0) call_nccl(a, comm_of(a), "ncclSend", &NcclApi::send, a.in<void>(0), bytes, NcclType::u8, to);
  if (from >= 0) call_nccl(a, comm_of(a), "ncclRecv", &NcclApi::receive, a.out<void>(0), bytes, NcclType::u8, from);
  expect_nccl(a, comm_of(a), "ncclGroupEnd", calls.end());
  a.count_kernel();
}

// An exchange that was given up may leave anything. If it was one of another group, the step fails, of which this
// gather tells all ranks. Whether the gather itself was given up is for check_ranks to see.
void nccl_agree(CudaArgs& a) {
  for (const NcclComm* comm : further_comms_of(a.local<RankWait>()))
    system_ops().fail_if_set(a, comm->given_up(), bound_node(a).id);
  check_cuda(cudaMemsetAsync(a.out<void>(0), 0, a.out_type(0).bytes(), a.stream()), "cudaMemsetAsync", a);
  call_nccl(a, comm_of(a.local<RankWait>()), "ncclAllGather", &NcclApi::all_gather, static_cast<const void*>(a.step()),
            a.out<void>(0), sizeof(StepState), NcclType::u8);
  a.count_kernel();
}

#endif

}  // namespace graphsink
