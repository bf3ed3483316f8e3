#include <cstdio>

#include "conformance/conformance.h"

namespace conformance {

Answer returns(const char* call, cudaError_t code, Status status) { return {call, true, code, status}; }
Answer gives(const char* value, int number) { return {value, false, number, Status::kNotAsked}; }

Answer decided(Answer answer, const char* reason) {
  answer.reason = reason;
  return answer;
}

Answer either(Answer answer, const Answer& other) {
  answer.others.push_back(other);
  return answer;
}

Case by_foreign_test(Case one) {
  for (Answer& answer : one.expected) answer.by_foreign_test = true;
  return one;
}

std::vector<Case> by_foreign_test(std::vector<Case> cases) {
  for (Case& one : cases) one = by_foreign_test(std::move(one));
  return cases;
}

std::string answer_text(const Answer& answer) {
  const std::string number = std::to_string(answer.number);
  if (!answer.is_code) return number;
  return std::string(cudaGetErrorName(static_cast<cudaError_t>(answer.number))) + "(" + number + ")";
}

std::string status_text(Status status) {
  switch (status) {
    case Status::kNone:
      return "none";
    case Status::kActive:
      return "active";
    case Status::kInvalidated:
      return "invalidated";
    case Status::kUnknown:
      return "unknown";
    case Status::kNotAsked:
      break;
  }
  return "-";
}

void Recorder::watch(cudaStream_t stream) { watched_ = stream; }

void Recorder::call(const char* name, cudaError_t code) { write({name, true, code, status()}); }

void Recorder::value(const char* name, long long number) {
  write({name, false, static_cast<int>(number), Status::kNotAsked});
}

void Recorder::need(const char* name, cudaError_t code) {
  if (code == cudaSuccess) return;
  write({std::string("set-up: ") + name, true, code, status()});
  throw CaseStopped();
}

void Recorder::write(const Answer& answer) {
  std::printf("%s, %s, %s, %s\n", case_name_.c_str(), answer.call.c_str(), answer_text(answer).c_str(),
              status_text(answer.status).c_str());
  std::fflush(stdout);
}

Status Recorder::status() const {
  if (watched_ == nullptr) return Status::kNotAsked;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(watched_, &status) != cudaSuccess) return Status::kUnknown;
  switch (status) {
    case cudaStreamCaptureStatusNone:
      return Status::kNone;
    case cudaStreamCaptureStatusActive:
      return Status::kActive;
    default:
      return Status::kInvalidated;
  }
}

}  // namespace conformance
