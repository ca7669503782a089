// JUnit XML, as CI systems read it: one suite per kernel and family, one testcase per case.
#include <fmt/format.h>

#include <cmath>

#include "reports/file.h"
#include "reports/text.h"

namespace gdn {
namespace {

using namespace reports;

std::string seconds(double s) { return std::isfinite(s) ? fmt::format("{:.6f}", s) : "0"; }

std::string testcase(const Record& r) {
  std::string s = fmt::format("    <testcase classname=\"{}.{}\" name=\"{}\" time=\"{}\"", xml_escape(r.kernel), xml_escape(r.family),
                              xml_escape(r.case_id), seconds(r.kernel_seconds + r.check_seconds + r.golden_seconds));
  if (r.verdict == "PASSED") return s + "/>\n";
  s += ">\n";
  const RecordCheck* c = failing_check(r);
  const std::string message = xml_escape(printable(r.verdict + ": " + (c ? c->check + ": " + c->message : r.reason)));
  if (!is_failure(r)) {
    s += fmt::format("      <skipped message=\"{}\"/>\n", xml_escape(printable((r.waived.empty() ? "" : "waived, " + r.waived + "; ") + r.verdict + ": " + r.reason)));
  } else {
    const char* tag = r.verdict == "RUNTIME_ERROR" || r.verdict == "TIMEOUT" ? "error" : "failure";
    s += fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", tag, xml_escape(r.verdict), message, xml_escape(failure_block(r)), tag);
  }
  return s + "    </testcase>\n";
}

}  // namespace

void write_junit(const std::string& file, const std::vector<Record>& records, const GateVerdict* gate) {
  const Tally sum = total(records);
  // What keeps the gate from passing although no case failed: a testcase of its own each, or readers would see green.
  const std::vector<std::string> others = gate ? other_objections(records, *gate) : std::vector<std::string>{};
  const long long n = static_cast<long long>(others.size());
  const auto counts = [](const Tally& t) {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"", t.cases, t.failed + t.mistrusted + t.untested,
                       t.errors, t.not_supported + t.skipped + t.waived, seconds(t.seconds));
  };
  std::string s = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  // The root takes no "skipped" attribute in the schemas that CI systems check against.
  s += fmt::format("<testsuites name=\"gdn-cts\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{}\">\n", sum.cases + n,
                   sum.failed + sum.mistrusted + sum.untested + n, sum.errors, seconds(sum.seconds));
  for (const Tally& t : tally(records)) {
    s += fmt::format("  <testsuite name=\"{}.{}\" {}>\n", xml_escape(t.kernel), xml_escape(t.family), counts(t));
    bool first = true;
    for (const Record& r : records) {
      if (r.kernel != t.kernel || r.family != t.family) continue;
      if (first) {
        s += "    <properties>\n";
        for (const auto& [key, value] : {std::pair{"contract", r.contract}, {"convention", r.convention}, {"kernel_version", r.kernel_version},
                                         {"level", r.level}, {"suite_version", r.suite_version}, {"accuracy_standard", r.edition}})
          s += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", key, xml_escape(printable(value)));
        s += "    </properties>\n";
        first = false;
      }
      s += testcase(r);
    }
    s += "  </testsuite>\n";
  }
  if (n) {
    s += fmt::format("  <testsuite name=\"gate\" tests=\"{0}\" failures=\"{0}\" errors=\"0\" skipped=\"0\" time=\"0\">\n", n);
    for (const std::string& line : others)
      s += fmt::format("    <testcase classname=\"gate\" name=\"{0}\" time=\"0\"><failure type=\"UNTESTED\" message=\"{0}\"/></testcase>\n", xml_escape(printable(line)));
    s += "  </testsuite>\n";
  }
  write_file(file, s + "</testsuites>\n");
}

}  // namespace gdn
