#include "comm/job_key.h"

#include <zmq.h>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKeyCharacters = 40;

fs::path file_in(const fs::path& folder) { return folder / "job.key"; }

}  // namespace

JobKey JobKey::make() {
  char public_key[kKeyCharacters + 1], secret_key[kKeyCharacters + 1];
  if (zmq_curve_keypair(public_key, secret_key) != 0) fail("cannot make a key: {}", zmq_strerror(zmq_errno()));
  return {public_key, secret_key};
}

JobKey JobKey::load(const fs::path& folder) {
  const fs::path path = file_in(folder);
  std::string secret = read_file(path);
  const fs::perms others = fs::perms::group_all | fs::perms::others_all;
  check((fs::status(path).permissions() & others) == fs::perms::none,
        "[job key] others may read {}; make a new key, or protect this one: chmod 600", path.string());
  if (!secret.empty() && secret.back() == '\n') secret.pop_back();
  char public_key[kKeyCharacters + 1];
  // The Z85 decoder reads to the end of the text, so its length is checked first.
  if (secret.size() != kKeyCharacters || zmq_curve_public(public_key, secret.c_str()) != 0)
    fail("{} is not a key; make one with `train keygen`", path.string());
  return {public_key, secret};
}

void JobKey::save(const fs::path& folder) const {
  make_directories(folder);
  File file = File::create_private(file_in(folder));
  file.write(secret_key + "\n");
  file.sync();
  sync_directory(folder);
}

}  // namespace elinvar
