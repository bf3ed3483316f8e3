#include "device/cuda/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "base/in_body.h"
#include "device/cuda/control.h"
#include "device/cuda/feed_memory.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/target.h"
#include "device/decide.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

OpBody::Cuda body_of(const BoundNode& node, int capability) {
  if (const OpBody* body = body_for(*node.op, DeviceKind::cuda, capability)) return body->cuda;
  throw Error(std::string(node.op->name), node.where,
              "it has no CUDA body for compute capability " + std::to_string(capability),
              "give it one, or a CPU body and the placement gs::on_cpu");
}

CudaDevice& cuda_device(Device& device) { return static_cast<CudaDevice&>(device); }

// Runs the CPU body of an op. An exception is noted in the status; a node of the plan that reads `failed` then fails
// the step.
void run_cpu_body(const BoundNode& node, bool flush_denormals) noexcept {
  RunningCall shown(node.status->running, node);
  const InBody body(node.status);
  const FlushDenormals denormals(flush_denormals);
  try {
    body_for(*node.op, DeviceKind::cpu)->cpu(CpuArgs(node));
  } catch (...) {
    node.status->take_exception(node);
  }
}

}  // namespace

CudaDevice::CudaDevice(int index, const Log& log, std::span<Device* const> beside, bool flush_denormals)
    : flush_denormals_(flush_denormals),
      calls_(open_calls(index, log, beside.empty() ? nullptr : cuda_device(*beside[0]).calls_.get())),
      compiler_(std::make_shared<Nvrtc>(Nvrtc::find())),
      setup_stream_(*calls_),
      staging_(calls_->log),
      capture_(beside.empty() ? std::make_shared<StreamCapture>(calls_) : cuda_device(*beside[0]).capture_) {
  target_ = read_target(*calls_);
  target_.fusion_obstacle = compiler_->obstacle(target_.sm);
  target_.compiles_kernels = target_.fusion_obstacle.empty();
  const CurrentDevice current(*calls_);
  const RelaxedCapture relaxed(*calls_);
  int sm_of_code = 0;
  calls_->check(load_control_kernels(&sm_of_code), "cudaFuncGetAttributes");
  target_.launches_programmatically = std::min(target_.sm, sm_of_code) >= kLeastProgrammaticSm;
  decision_ = allocate_pinned(*calls_, sizeof(std::int32_t));
  for (Device* other : beside) {
    CudaDevice& linked = cuda_device(*other);
    if (link_devices(*linked.calls_, *calls_)) linked.target_.peers = linked.calls_->peers;
  }
  target_.peers = calls_->peers;
}

CurrentDevice CudaDevice::enter() {
  calls_->require_device();
  return CurrentDevice(*calls_);
}

void CudaDevice::require_live(const char* what) const {
  if (!capture_->is_active()) return;
  throw CaptureFailed(what, Where(), "it cannot be part of a capture", "do this before or after the capture");
}

Memory CudaDevice::allocate(std::size_t bytes) {
  CurrentDevice current = enter();
  return allocate_device(*calls_, setup_stream_, bytes);
}

Memory CudaDevice::allocate_host(std::size_t bytes) {
  CurrentDevice current = enter();
  return allocate_pinned(*calls_, bytes);
}

std::unique_ptr<Arena> CudaDevice::reserve() {
  CurrentDevice current = enter();
  return reserve_arena(calls_);
}

std::unique_ptr<FeedMemory> CudaDevice::make_feed_memory() { return make_cuda_feed_memory(*this, *calls_); }

std::size_t CudaDevice::staging_bytes() const { return staging_.bytes() + rounded_block(sizeof(bool)); }

std::unique_ptr<Stream> CudaDevice::make_stream() {
  CurrentDevice current = enter();
  return std::make_unique<CudaStream>(*calls_);
}

std::unique_ptr<Stream> CudaDevice::borrow_stream(void* handle) {
  CurrentDevice current = enter();
  auto* stream = static_cast<cudaStream_t>(handle);
  // While the stream is being captured, cudaStreamGetDevice() is refused and breaks the capture. If it is a stream of
  // another device then, the first event that is recorded on it fails.
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  calls_->check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusNone) return std::make_unique<CudaStream>(*calls_, stream);
  int device = -1;
  calls_->check(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
  if (device != calls_->device()) {
    throw Error(
        "stream", Where(),
        "the stream belongs to cuda:" + std::to_string(device) + ", the program runs on " + to_string(target().id),
        "pass a stream that was made while cudaSetDevice(" + std::to_string(calls_->device()) + ") was in force");
  }
  return std::make_unique<CudaStream>(*calls_, stream);
}

std::optional<MemoryRoom> CudaDevice::room() {
  CurrentDevice current = enter();
  MemoryRoom room;
  calls_->check(cudaMemGetInfo(&room.free, &room.total), "cudaMemGetInfo");
  return room;
}

void CudaDevice::require_usable(const void* memory, std::size_t bytes) {
  CurrentDevice current = enter();
  auto refuse = [](const std::string& problem) {
    throw Error("memory", Where(), problem, "pass memory from cudaMalloc() on the device of the program");
  };
  auto attributes_at = [&](std::size_t offset) {
    cudaPointerAttributes attributes{};
    calls_->check(cudaPointerGetAttributes(&attributes, static_cast<const std::byte*>(memory) + offset),
                  "cudaPointerGetAttributes");
    return attributes;
  };
  const cudaPointerAttributes first = attributes_at(0), last = attributes_at(std::max<std::size_t>(bytes, 1) - 1);
  if (first.type == cudaMemoryTypeUnregistered) refuse("it is not memory of a CUDA device");
  if (first.type == cudaMemoryTypeHost) refuse("it is memory of the host");
  if (first.device != calls_->device()) {
    refuse("it belongs to cuda:" + std::to_string(first.device) + ", the program runs on " + to_string(target().id));
  }
  if (last.type != first.type || last.device != first.device)
    refuse("it ends before the " + std::to_string(bytes) + " bytes that were said to be there");
}

void CudaDevice::wait(Stream& stream) {
  CurrentDevice current = enter();
  require_live("wait");
  RelaxedCapture relaxed(*calls_);
  calls_->check(cudaStreamSynchronize(cuda_stream(stream).get()), "cudaStreamSynchronize");
}

bool CudaDevice::is_done(Stream& stream) {
  CurrentDevice current = enter();
  require_live("poll");
  RelaxedCapture relaxed(*calls_);
  cudaError_t code = cudaStreamQuery(cuda_stream(stream).get());
  bool is_busy = code == cudaErrorNotReady;
  if (is_busy && cudaPeekAtLastError() == code) (void)cudaGetLastError();  // "not ready" is an answer, not an error
  calls_->check(is_busy ? cudaSuccess : code, "cudaStreamQuery");
  return !is_busy;
}

Counters CudaDevice::counters() const {
  Counters counters = calls_->counters;
  counters.device_bytes = calls_->held->device;
  counters.host_bytes = calls_->held->host;
  return counters;
}

// Asks again and again. cudaDeviceSynchronize() would end every capture of the process, in whatever mode.
bool CudaDevice::wait_otherwise(Stream& stream) noexcept {
  if (!calls_->is_lost()) {
    const RelaxedCapture always_allowed(calls_->log);
    cudaError_t code = cudaSuccess;
    while ((code = cudaStreamQuery(cuda_stream(stream).get())) == cudaErrorNotReady) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (code != cudaSuccess) log_failure(calls_->log, "cudaStreamQuery", cudaGetErrorName(code));
    if (!is_sticky(code)) return code == cudaSuccess;
  }
  // After an error that destroys the context, CUDA calls no more host functions. But one may still be running.
  while (int running = running_host_calls_.load()) running_host_calls_.wait(running);
  return true;
}

void CudaDevice::make_wait(Stream& later, Stream& earlier) {
  if (&later == &earlier) return;
  CurrentDevice current = enter();
  cuda_stream(later).wait_for(cuda_stream(earlier), *calls_);
  if (!capture_->is_active()) return;  // outside of a capture, another thread may own the stream
  cuda_stream(earlier).is_open = false;
  cuda_stream(later).is_open = true;
  cuda_stream(later).has_waited = true;
}

void CudaDevice::begin(Stream& stream, const LaunchRing& ring) {
  CurrentDevice current = enter();
  CudaStream& on = cuda_stream(stream);
  if (capture_->is_active()) capture_->expect(on, nullptr);
  calls_->check(launch_begin(on.get(), ring), "cudaLaunchKernelEx");
  if (capture_->is_active()) {
    capture_->note(on, nullptr);
  } else {
    ++calls_->counters.kernels;
  }
}

void CudaDevice::call(Stream& stream, const BoundNode& node) {
  CurrentDevice current = enter();
  CudaStream& on = cuda_stream(stream);
  if (node.on_host) return enqueue_host_call(on, node);
  if (!capture_->is_active()) return run_body(on, node, {});
  capture_->expect(on, &node);
  try {
    run_body(on, node, capture_->launches(on, node));
  } catch (const CaptureFailed&) {
    throw;
  } catch (const Error& e) {
    if (calls_->is_lost()) throw;
    bool names_op = e.op() == node.op->name;
    throw CaptureFailed(std::string(node.op->name), node.where, names_op ? e.problem() : e.op() + ": " + e.problem(),
                        e.remedy(), e.code());
  }
  capture_->note(on, &node);
}

void CudaDevice::run_body(CudaStream& stream, const BoundNode& node, const CudaLaunches& how) {
  // Kernels are also counted if the body fails half-way, because those that it has already launched run.
  struct Kernels {
    CudaDevice& device;
    CudaLaunches launches;
    ~Kernels() {
      device.calls_->counters.api_calls += launches.kernels;
      if (!device.capture_->is_active()) device.calls_->counters.kernels += launches.kernels;
    }
  } kernels{*this, how};
  CudaArgs args(node, *this, stream.get(), &kernels.launches);
  // If the body did not check a refused launch, only the last error shows it. An error from before the call is not this
  // op's.
  bool had_error = cudaPeekAtLastError() != cudaSuccess;
  try {
    body_of(node, target_.sm)(args);
  } catch (const CudaFailure& e) {
    fail_body(e.code(), e.call(), node);
  }
  if (kernels.launches.calls_library && capture_->is_active()) capture_->note_library(node);
  cudaError_t code = had_error ? cudaSuccess : cudaPeekAtLastError();
  if (code != cudaSuccess) fail_body(code, nullptr, node);
}

// Behind the call that broke a capture every other one fails. CUDA's log names the first. A lost device is no reason
// of a capture's, whoever says so.
void CudaDevice::fail_body(cudaError_t code, const char* call, const BoundNode& node) {
  const bool is_known = is_sticky(code) || (call && code != cudaErrorStreamCaptureInvalidated);
  const std::string cause = is_known ? "" : capture_->cause(code);
  if (cause.empty()) calls_->fail(code, call ? call : "a call of its body", &node);
  (void)cudaGetLastError();
  refuse_capture(&node, cause, remedy_for(code));
}

void CudaDevice::run_host_call(void* data) noexcept {
  const auto& call = *static_cast<const HostCall*>(data);
  std::atomic<int>& running = call.device->running_host_calls_;
  ++running;
  run_cpu_body(*call.node, call.device->flush_denormals_);
  --running;
  running.notify_all();
}

void CudaDevice::enqueue_host_call(CudaStream& stream, const BoundNode& node) {
  if (capture_->is_active()) capture_->expect(stream, &node);
  // CUDA takes a non-const pointer, but run_host_call() does not change the element. So the order of the set stays
  // intact.
  auto* data = const_cast<HostCall*>(&*host_calls_.insert({this, &node}).first);
  calls_->check(cudaLaunchHostFunc(
                    stream.get(), [](void* d) { run_host_call(d); }, data),
                "cudaLaunchHostFunc", &node);
  if (capture_->is_active()) {
    capture_->note(stream, &node);
  } else {
    ++calls_->counters.host_nodes;
  }
}

void CudaDevice::call_now(const BoundNode& node) {
  require_live("a call of the host");
  ++calls_->counters.host_nodes;
  run_cpu_body(node, flush_denormals_);
}

void CudaDevice::copy(Stream& stream, void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  CurrentDevice current = enter();
  CudaStream& on = cuda_stream(stream);
  if (capture_->is_active()) capture_->expect(on, nullptr);
  calls_->check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, on.get()), "cudaMemcpyAsync");
  if (capture_->is_active()) {
    capture_->note(on, nullptr);
  } else {
    ++calls_->counters.copies;
  }
}

void CudaDevice::upload(Stream& stream, void* destination, const void* source, std::size_t bytes) {
  CurrentDevice current = enter();
  require_live("upload");
  staging_.upload(*calls_, cuda_stream(stream), destination, source, bytes);
}

void CudaDevice::control(Streams streams, TaskKind kind, const void* decision, std::size_t count,
                         const Bodies& bodies) {
  if (capture_->is_active()) {
    CurrentDevice current = enter();
    return capture_->control(streams, kind, decision, count, bodies);
  }
  auto read = [&, &stream = *streams[0]] {
    copy(stream, decision_.get(), decision, kind == TaskKind::choice ? sizeof(std::int32_t) : sizeof(bool));
    wait(stream);
    return static_cast<const void*>(decision_.get());
  };
  drive(streams, kind, read, bodies);
}

void CudaDevice::begin_capture(Streams streams) {
  CurrentDevice current = enter();
  require_live("begin_capture");
  capture_->begin(streams);
}

std::unique_ptr<CapturedGraph> CudaDevice::end_capture(Streams, std::unique_ptr<CapturedGraph> spare) {
  CurrentDevice current = enter();
  return capture_->end(std::unique_ptr<CudaCapturedGraph>(static_cast<CudaCapturedGraph*>(spare.release())));
}

bool CudaDevice::is_captured_by_others(Stream& callers) {
  CurrentDevice current = enter();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  calls_->check(cudaStreamIsCapturing(cuda_stream(callers).get(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void CudaDevice::enter_capture(Streams streams, Stream& callers, std::shared_ptr<void> owner) {
  CurrentDevice current = enter();
  require_live("enter_capture");
  capture_->enter(streams, cuda_stream(callers), std::move(owner));
}

void CudaDevice::leave_capture(Streams) noexcept { capture_->cancel(); }

void CudaDevice::launch(Stream& stream, CapturedGraph& graph, std::int64_t steps) {
  CurrentDevice current = enter();
  require_live("launch");
  const auto& captured = static_cast<CudaCapturedGraph&>(graph);
  calls_->check(cudaGraphLaunch(captured.exec(), cuda_stream(stream).get()), "cudaGraphLaunch");
  captured.count_launch(calls_->counters, static_cast<std::uint64_t>(steps));
  ++calls_->counters.graph_launches;
}

}  // namespace graphsink
