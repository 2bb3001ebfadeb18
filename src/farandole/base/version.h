// The version of Farandole's libraries that the program runs with.
// Thread safety: any thread may call this at any time.
#pragma once

namespace farandole {

const char* version();  // "0.1.0"

}  // namespace farandole
