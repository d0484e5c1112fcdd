#include "elastic/ledger/events.h"

#include <nlohmann/json.hpp>

#include "tensor/base/check.h"

namespace elinvar {

nlohmann::ordered_json EventLog::write(std::string_view event, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json line = {{"time", utc_now()}, {"event", event}};
  line.update(fields);
  // File names need not be UTF-8, but JSON must be.
  file_.append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  file_.write();
  return line;
}

}  // namespace elinvar
