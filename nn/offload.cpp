#include "nn/offload.h"

#include "tensor/base/check.h"
#include "tensor/file_tensor.h"
#include "tensor/ops/copy.h"
#include "tensor/transfer.h"

namespace elinvar {

Tensor Offload::zeros(const Shape& shape, DType dtype, Device device) const {
  if (to == To::file) return zeros_in_file(shape, dtype, folder);
  if (!elsewhere(device)) return Tensor::zeros(shape, dtype, device);
  Tensor state = page_locked(shape, dtype, device);
  fill(state, 0.0);
  return state;
}

Offload parse_offload(const std::string& text, Device device) {
  constexpr std::string_view kFile = "file", kFolder = "file:", kInputs = ",inputs";
  const bool inputs = text.ends_with(kInputs);
  const std::string place = inputs ? text.substr(0, text.size() - kInputs.size()) : text;
  if (place == "none" && !inputs) return {};
  if (place == "host") {
    check(device != Device{},
          "--offload host: this worker computes on the CPU, so the state of the optimizer is in the host's memory "
          "already; --offload file keeps it in a file");
    return {.to = Offload::To::host, .inputs = inputs};
  }
  check(place == kFile || (place.starts_with(kFolder) && place.size() > kFolder.size()),
        "--offload: none, host, file or file:FOLDER expected, and perhaps ,inputs after it, got '{}'", text);
  std::error_code error;
  const std::filesystem::path folder = place == kFile ? std::filesystem::temp_directory_path(error)
                                                      : std::filesystem::path(place.substr(kFolder.size()));
  check(!error && std::filesystem::is_directory(folder, error), "--offload {}: there is no folder {}", text,
        folder.empty() ? "for temporary files" : folder.string());
  return {.to = Offload::To::file, .folder = folder, .inputs = inputs};
}

}  // namespace elinvar
