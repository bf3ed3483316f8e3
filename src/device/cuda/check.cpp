#include "device/cuda/check.h"

namespace graphsink {

// Lists the errors of which driver_types.h says that "the process must be terminated and relaunched".
bool is_sticky(cudaError_t code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

namespace {

bool is_capture_error(cudaError_t code) {
  return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
}

std::string device_name(int device) { return to_string(DeviceId{DeviceKind::cuda, device}); }

}  // namespace

const char* remedy_for(cudaError_t code) {
  if (is_sticky(code)) {
    return "restart the process and resume from a checkpoint; compute-sanitizer finds the kernel at fault";
  }
  if (is_capture_error(code)) {
    return kCaptureRemedy;
  }
  switch (code) {
    case cudaErrorMemoryAllocation:
      return "use smaller shapes or batches, or end other programs on this device";
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
      return "install a driver for CUDA 13, or compile for gs::cpu()";
    case cudaErrorInvalidResourceHandle:
      return "pass streams and events that exist, and that were made while the program's device was the current one";
    case cudaErrorNotPermitted:
      return "if it was called in the body of a CPU op, in which CUDA takes no calls: call it before or after the "
             "step, or "
             "for gs::cpu()";
    case cudaErrorNoKernelImageForDevice:
      return "build graphsink with the device's architecture in CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
      return "launch with fewer threads or less shared memory per block";
    default:
      return "see this error in the documentation of the CUDA runtime";
  }
}

ErrorCode error_code_of(cudaError_t code) {
  if (is_sticky(code)) return ErrorCode::device_lost;
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::out_of_memory;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotSupported:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
      return ErrorCode::unavailable;
    default:
      return ErrorCode::misuse;
  }
}

std::string describe(cudaError_t code, const char* call) {
  return std::string(call) + " returned " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ")";
}

CudaFailure::CudaFailure(cudaError_t code, const char* call, const BoundNode& node)
    : Error(std::string(node.op->name), node.where, describe(code, call), remedy_for(code), error_code_of(code)),
      code_(code),
      call_(call) {}

void check_cuda(int code, const char* call, const BodyArgs& body) {
  if (code != cudaSuccess) throw CudaFailure(static_cast<cudaError_t>(code), call, bound_node(body));
}

void Calls::fail(cudaError_t code, const char* call, const BoundNode* node) {
  (void)cudaGetLastError();  // handled here, so the user's next check of the last error must not see it
  std::string op = node ? std::string(node->op->name) : device_name(device_);
  Where where = node ? node->where : Where();
  std::string problem = describe(code, call);
  if (is_sticky(code)) {
    if (!is_lost()) fate_->lost = (node ? op + ": " : std::string()) + problem;
    throw Error(op, where, problem, remedy_for(code), error_code_of(code));
  }
  if (is_capturing()) throw CaptureFailed(op, where, problem, remedy_for(code), error_code_of(code));
  throw Error(op, where, problem, remedy_for(code), error_code_of(code));
}

void Calls::throw_lost() const {
  throw Error(device_name(device_), Where(), "the device is lost: " + fate_->lost, remedy_for(cudaErrorLaunchFailure),
              ErrorCode::device_lost);
}

CurrentDevice::CurrentDevice(Calls& calls) : calls_(calls) {
  if (calls.is_only_device()) return;
  int current = 0;
  calls.check(cudaGetDevice(&current), "cudaGetDevice");
  if (current == calls.device()) return;
  calls.check(cudaSetDevice(calls.device()), "cudaSetDevice");
  before_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (before_ < 0) return;
  cudaError_t code = cudaSetDevice(before_);
  if (code != cudaSuccess) log_failure(calls_.log, "cudaSetDevice", cudaGetErrorName(code));
}

RelaxedCapture::RelaxedCapture(Calls& calls) : log_(calls.log), calls_(&calls) {
  calls.check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  is_changed_ = true;
}

RelaxedCapture::RelaxedCapture(const Log& log) noexcept : log_(log) {
  cudaError_t code = cudaThreadExchangeStreamCaptureMode(&mode_);
  is_changed_ = code == cudaSuccess;
  if (!is_changed_) log_failure(log_, "cudaThreadExchangeStreamCaptureMode", cudaGetErrorName(code));
}

RelaxedCapture::~RelaxedCapture() {
  if (!is_changed_) return;
  cudaError_t code = cudaThreadExchangeStreamCaptureMode(&mode_);
  if (calls_) ++calls_->counters.api_calls;
  if (code != cudaSuccess) log_failure(log_, "cudaThreadExchangeStreamCaptureMode", cudaGetErrorName(code));
}

void log_failure(const Log& log, const char* call, const char* code) noexcept {
  (void)cudaGetLastError();
  log.warn({call, " returned ", code, ", which could not be thrown"});
}

}  // namespace graphsink
