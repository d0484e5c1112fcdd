#include "tools/train/program.h"

#include "tensor/digest.h"
#include "tensor/file.h"

namespace elinvar {

std::string digest_of_program(const std::filesystem::path& program) {
  const std::string bytes = read_file(program);
  return digest_bytes(bytes.data(), bytes.size()).hex();
}

}  // namespace elinvar
