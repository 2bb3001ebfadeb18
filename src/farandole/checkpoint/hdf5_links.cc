#include "farandole/checkpoint/hdf5_links.h"

#include <array>
#include <cstring>
#include <deque>
#include <map>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

constexpr int deepest = 64;

// The beginning of a name of any length.
std::string shown(const char* name) {
  return printable(std::string_view(name, ::strnlen(name, 200)));
}

struct Link {
  std::string path;
  H5L_type_t type;
  int depth;
};

class Survey {
 public:
  Survey(hid_t file, const Hdf5Check& check) : file_(file), check_(check) {}

  FoundObjects run() {
    visit({"", H5L_TYPE_HARD, 0}, "");
    // A soft link waits until nothing else leads to further groups.
    for (; !groups_.empty() || !soft_links_.empty();) {
      auto& queue = groups_.empty() ? soft_links_ : groups_;
      const auto link = std::move(queue.front());
      queue.pop_front();
      follow(link);
    }
    return std::move(found_);
  }

 private:
  void problem(const std::string& path, std::string reason, bool damaged = false, bool elsewhere = false) {
    found_.problems.push_back({path, std::move(reason), damaged, elsewhere});
  }

  void follow(const Link& link) {
    Hdf5Handle object(open_within(file_, link.path), H5Oclose);
    if (object.get() < 0 && link.type == H5L_TYPE_SOFT) {
      H5Eclear2(H5E_DEFAULT);
      return problem(link.path, "it is a link to " + target_of(link.path) + ", which is not in this file");
    }
    if (object.get() < 0) return problem(link.path, "it is damaged: " + Hdf5Check::error_stack(), true);
    const auto type = H5Iget_type(object.get());
    if (type == H5I_DATASET) found_.datasets.emplace_back(link.path, std::move(object));
    if (type != H5I_GROUP) return;
    hobj_ref_t address{};
    check_(H5Rcreate(&address, object.get(), ".", H5R_OBJECT, H5I_INVALID_HID), "H5Rcreate");
    if (const auto [seen, is_new] = seen_.emplace(address, link.path); !is_new)
      return problem(link.path, "it is the group " + (seen->second.empty() ? "/" : seen->second) + " again");
    if (link.depth > deepest) return problem(link.path, "groups are nested too deep", true);
    try {
      visit(link, link.path);
    } catch (const Error& error) {
      problem(link.path, error.what(), true);
    }
  }

  void visit(const Link& group, const std::string& path) {
    Hdf5Handle opened = check_(open_within(file_, path.empty() ? "/" : path), H5Oclose, "open " + path + "/");
    if (path.empty()) {
      hobj_ref_t address{};
      check_(H5Rcreate(&address, opened.get(), ".", H5R_OBJECT, H5I_INVALID_HID), "H5Rcreate");
      seen_.emplace(address, path);
    }
    using Names = std::vector<std::pair<std::string, H5L_type_t>>;
    Names names;
    const auto append = [](hid_t, const char* name, const auto* info, void* list) -> herr_t {
      static_cast<Names*>(list)->emplace_back(name, info->type);
      return 0;
    };
    check_(H5Literate(opened.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, append, &names),
           "list group " + path + "/");
    for (const auto& [name, type] : names) {
      Link link{path + "/" + name, type, group.depth + 1};
      if (type == H5L_TYPE_HARD)
        groups_.push_back(std::move(link));
      else if (type == H5L_TYPE_SOFT)
        soft_links_.push_back(std::move(link));
      else
        problem(link.path, type == H5L_TYPE_EXTERNAL
                               ? "it is a link to another file, " + target_of(link.path) +
                                     "; copy the data into this file"
                               : "it is a link of an unknown kind");
    }
  }

  // The path to which a soft link leads, or the file to which an external link leads.
  std::string target_of(const std::string& path) const {
    H5L_info_t info{};
    if (H5Lget_info(file_, path.c_str(), &info, H5P_DEFAULT) < 0) return "nothing";
    constexpr std::size_t longest = 1 << 16;
    if (info.u.val_size == 0 || info.u.val_size > longest) return "nothing";
    std::string value(info.u.val_size + 1, '\0');
    if (H5Lget_val(file_, path.c_str(), value.data(), info.u.val_size, H5P_DEFAULT) < 0) return "nothing";
    if (info.type != H5L_TYPE_EXTERNAL) return shown(value.c_str());
    unsigned flags = 0;
    const char *target_file = "", *target_path = "";
    H5Lunpack_elink_val(value.data(), info.u.val_size, &flags, &target_file, &target_path);
    return shown(target_file);
  }

  const hid_t file_;
  const Hdf5Check& check_;
  FoundObjects found_;
  std::deque<Link> groups_, soft_links_;
  std::map<hobj_ref_t, std::string> seen_;  // Groups, by their addresses.
};

}  // namespace

Hdf5Handle links_within_the_file(const Hdf5Check& check) {
  const auto refuse = [](const char*, const char*, const char*, const char*, unsigned*, hid_t,
                         void*) -> herr_t { return -1; };
  auto access = check(H5Pcreate(H5P_LINK_ACCESS), H5Pclose, "H5Pcreate");
  check(H5Pset_elink_cb(access.get(), refuse, nullptr), "H5Pset_elink_cb");
  return access;
}

hid_t open_within(hid_t file, const std::string& path) {
  const Hdf5Check check("HDF5", ExitCode::failure);
  return H5Oopen(file, path.c_str(), links_within_the_file(check).get());
}

std::optional<Hdf5Problem> problem_of(hid_t dataset, const std::string& path, const Hdf5Check& check) {
  std::array<char, 256> name{};
  const auto creation = check(H5Dget_create_plist(dataset), H5Pclose, "H5Dget_create_plist");
  const auto elsewhere = [&](const std::string& how) {
    return Hdf5Problem{path,
                       "its values are in another file, " + shown(name.data()) + " (" + how +
                           "), which is not read; copy the data into this file",
                       false, true};
  };
  if (H5Pget_layout(creation.get()) == H5D_VIRTUAL) {
    H5Pget_virtual_filename(creation.get(), 0, name.data(), name.size() - 1);
    return elsewhere("a virtual data set");
  }
  if (H5Pget_external_count(creation.get()) > 0) {
    off_t offset = 0;
    hsize_t bytes = 0;
    H5Pget_external(creation.get(), 0, name.size() - 1, name.data(), &offset, &bytes);
    return elsewhere("external storage");
  }
  const auto space = check(H5Dget_space(dataset), H5Sclose, "H5Dget_space");
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) return Hdf5Problem{path, "it has no values"};
  const int filters = H5Pget_nfilters(creation.get());
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, configuration = 0;
    std::size_t values = 0;
    const auto filter = check(H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &values,
                                             nullptr, name.size() - 1, name.data(), &configuration),
                              "H5Pget_filter2");
    if (H5Zfilter_avail(filter) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      const auto named = shown(name.data());
      return Hdf5Problem{path, "this HDF5 lacks its filter " + std::to_string(filter) +
                                   (named.empty() ? "" : " (" + named + ")") +
                                   "; install the filter's plugin, or write it without"};
    }
  }
  return std::nullopt;
}

FoundObjects find_objects(hid_t file, const Hdf5Check& check) {
  return Survey(file, check).run();
}

}  // namespace farandole
