// The start of a group whose values NCCL moves.
#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "graphsink/ranks.h"
#include "graphsink/target.h"
#include "ranks/nccl_comm.h"
#include "ranks/rank_group.h"

#ifdef GRAPHSINK_CUDA
#include <cuda_runtime_api.h>
#endif

namespace graphsink {

int Comm::device() const noexcept { return group_->device(); }

#ifdef GRAPHSINK_CUDA

namespace {

constexpr const char* kInstall =
    "install NCCL 2.28 or newer, or name its file in the environment variable GRAPHSINK_NCCL; or use world(), by "
    "which values cross the host";

std::string machine_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// Makes a device current, as long as it lives.
class OnCudaDevice {
 public:
  explicit OnCudaDevice(int device) {
    (void)cudaGetDevice(&before_);
    code_ = cudaSetDevice(device);
  }
  ~OnCudaDevice() { (void)cudaSetDevice(before_); }
  OnCudaDevice(const OnCudaDevice&) = delete;
  OnCudaDevice& operator=(const OnCudaDevice&) = delete;

  cudaError_t code() const { return code_; }

 private:
  int before_ = 0;
  cudaError_t code_ = cudaSuccess;
};

// The number of the device that this rank uses. Leaves a problem if there is none.
int choose_device(RankGroup& group, const NcclOptions& options, const Exchange& exchange, std::string& problem) {
  const std::vector<std::string> machines = group.all_texts(machine_name(), exchange);
  const auto mine = machines.begin() + group.rank();
  const int on_machine =
      group.local_rank() >= 0 ? group.local_rank() : static_cast<int>(std::count(machines.begin(), mine, *mine));
  const int count = cuda_device_count();
  if (problem.empty() && count == 0) problem = "there is no CUDA device";
  if (problem.empty() && options.device >= count)
    problem = "NcclOptions::device is " + std::to_string(options.device) + ", and there are " + std::to_string(count);
  const int device = options.device >= 0 ? options.device : on_machine % std::max(count, 1);
  if (problem.empty()) {
    const OnCudaDevice current(device);
    // A device that cannot be used says so here, before the others wait for this rank in NCCL.
    const cudaError_t code = current.code() == cudaSuccess ? cudaFree(nullptr) : current.code();
    if (code != cudaSuccess) problem = std::string("device ") + std::to_string(device) + ": " + cudaGetErrorName(code);
  }
  return device;
}

// Throws Error on all ranks if one of them has a problem.
void expect_none(RankGroup& group, const std::string& problem, const Exchange& exchange) {
  const std::vector<std::string> all = group.all_texts(problem, exchange);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    throw Error("nccl_world", exchange.where, "rank " + std::to_string(rank) + " cannot use NCCL: " + all[rank],
                kInstall, ErrorCode::unavailable);
  }
}

}  // namespace

NcclComm::NcclComm(const NcclApi& nccl, int device, int ranks, int rank, const NcclId& id, const Where& where)
    : nccl_(nccl), device_(device) {
  const OnCudaDevice current(device);
  if (current.code() != cudaSuccess)
    throw Error("nccl_world", where, std::string("cudaSetDevice returned ") + cudaGetErrorName(current.code()),
                "choose another device with NcclOptions::device", ErrorCode::unavailable);
  void* word = nullptr;
  if (const cudaError_t code = cudaHostAlloc(&word, sizeof *given_up_, cudaHostAllocMapped | cudaHostAllocPortable);
      code != cudaSuccess)
    throw Error("nccl_world", where, std::string("cudaHostAlloc returned ") + cudaGetErrorName(code),
                "free pinned memory", ErrorCode::out_of_memory);
  given_up_ = new (word) std::uint32_t(0);
  NcclConfig config = config_of(nccl);
  const NcclResult result = nccl.init_rank(&handle_, ranks, id, rank, &config);
  if (result == NcclResult::success) return;
  (void)cudaFreeHost(word);
  throw Error("nccl_world", where, nccl_problem(nccl, "ncclCommInitRankConfig", result, nullptr),
              "give each rank a GPU of its own, and see what NCCL prints with NCCL_DEBUG=WARN", ErrorCode::unavailable);
}

NcclComm::~NcclComm() {
  if (is_aborted_) return;
  const OnCudaDevice current(device_);
  nccl_.destroy(handle_);
  (void)cudaFreeHost(given_up_);
}

// NCCL ends the kernels at once, and returns when no graph holds them any more: those of programs that wait for this
// thread, for instance.
void NcclComm::abort() {
  give_up();
  if (is_aborted_.exchange(true)) return;
  const auto end = [&nccl = nccl_, handle = handle_, device = device_] {
    const OnCudaDevice current(device);
    nccl.abort(handle);
  };
  try {
    std::thread(end).detach();
  } catch (const std::system_error&) {
    // The process has no thread to spare: the kernels stay until it ends.
  }
}

void add_nccl(RankGroup& group, const NcclApi& nccl, int device, const Where& where) {
  group.set_device(device);
  if (group.size() == 1) return;
  const Exchange exchange{"nccl_world", where};
  NcclId id;
  std::string problem;
  if (group.rank() == 0) {
    const NcclResult result = nccl.get_unique_id(&id);
    if (result != NcclResult::success) problem = nccl_problem(nccl, "ncclGetUniqueId", result, nullptr);
  }
  expect_none(group, problem, exchange);
  group.broadcast_parts(id.bytes, sizeof id.bytes, 0, exchange);
  group.set_nccl(std::make_shared<NcclComm>(nccl, device, group.size(), group.rank(), id, where));
}

Comm nccl_world(const NcclOptions& options, Where where) {
  const Comm comm = world({.patience_s = options.patience_s}, where);
  RankGroup& group = *comm.group();
  const Exchange exchange{"nccl_world", where};
  std::string problem, no_nccl;
  const int device = choose_device(group, options, exchange, problem);
  group.set_device(device);
  const NcclApi* nccl = group.size() > 1 ? &NcclApi::find(no_nccl) : nullptr;
  expect_none(group, problem.empty() ? no_nccl : problem, exchange);
  if (nccl == nullptr) return comm;
  add_nccl(group, *nccl, device, where);
  return comm;
}

#else

NcclComm::~NcclComm() = default;
void NcclComm::abort() {}
void add_nccl(RankGroup&, const NcclApi&, int, const Where&) {}

Comm nccl_world(const NcclOptions&, Where where) {
  throw Error("nccl_world", where, "this library was built without CUDA",
              "build it for CUDA, or use world(), by which values cross the host", ErrorCode::unavailable);
}

#endif

}  // namespace graphsink
