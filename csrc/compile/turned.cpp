// What is read in the place of a copy that nobody makes: images whose channels lie last, narrow sources of casts, heads that repeat.
#include <utility>

#include "../ops/ops.h"
#include "notes.h"

namespace wisp::compile {

std::vector<Turned> turned_values;

namespace {

std::vector<uint32_t> free_places;

// Where elements of contiguous [n, c, p] that are seen by a layout lie in [n, p, c]; nothing: no layout says that.
std::optional<Layout> turned_layout(const Layout& l, const Image& image) {
    const int64_t sizes[3] = {image.samples, image.channels, image.places}, from[3] = {sizes[1] * sizes[2], sizes[2], 1},
                  to[3] = {sizes[1] * sizes[2], 1, sizes[1]};
    int64_t last[3];  // index along each that is seen
    Layout r = l;
    r.offset = 0;
    for (int64_t rest = l.offset, k = 0; k < 3; rest %= from[k], k++) {
        last[k] = rest / from[k];
        r.offset += last[k] * to[k];
    }
    for (int64_t d = 0; d < l.sizes.size(); d++) {
        const int64_t size = l.sizes[d], stride = l.strides[d];
        if (size == 0 || stride < 0) return {};
        if (size == 1 || stride == 0) continue;
        const int k = stride % from[0] == 0 ? 0 : stride < from[0] && stride % from[1] == 0 ? 1 : stride < from[1] ? 2 : -1;
        if (k < 0) return {};
        r.strides[d] = stride / from[k] * to[k];
        last[k] += stride / from[k] * (size - 1);
    }
    for (int k = 0; k < 3; k++)
        if (last[k] >= sizes[k]) return {};
    return r;
}

// The values of a source, for a note.
Operand operand_of(const Turned& t) {
    Operand o;
    o.dtype = t.dtype;
    if (is_pending(t.source)) {
        o.kind = Operand::noted;
        o.note = t.source->note;
    } else {
        o.kind = Operand::memory;
        o.storage = t.source;
    }
    return o;
}

}  // namespace

std::optional<Operand> behind(const Tensor& t) {
    const Turned* from = turned_of(t.storage());
    if (!from || from->dtype != t.dtype() || is_running(from->source)) return {};
    std::optional<Layout> l = turned_layout(t.layout(), from->image);
    if (!l) return {};
    Operand o = operand_of(*from);
    o.layout = *l;
    return o;
}

namespace {

void add_turned(Storage* seen, Storage* source, DType dtype, const Image& image) {
    if (free_places.empty()) {
        free_places.push_back(uint32_t(turned_values.size()));
        turned_values.emplace_back();
    }
    const uint32_t place = free_places.back();
    free_places.pop_back();
    source->retain();
    turned_values[place] = {seen, source, dtype, image};
    make_pending(seen, first_turned + place);
}

}  // namespace

void let_go(Turned& t) {
    free_places.push_back(uint32_t(&t - turned_values.data()));
    std::exchange(t, {}).source->drop();
}

void note_turned(Storage* seen) {
    if (Storage* source = turned_of(seen)->source; is_running(source)) settle(source);
    Turned& t = *turned_of(seen);
    const Dims sizes = {t.image.samples, t.image.channels, t.image.places};
    Note& n = notes.emplace_back();
    n.step.kind = kernels::StepKind::cast;
    n.step.compute = n.step.block = n.step.result = t.dtype;
    n.step.count = 1;
    n.device = seen->device;
    n.layout = {sizes, contiguous_strides(sizes), 0};
    n.operands[0] = operand_of(t);
    if (n.operands[0].kind == Operand::memory) read_later(n.operands[0].storage);
    n.operands[0].layout = *turned_layout(n.layout, t.image);
    n.out = seen;
    uses.push_back(uses_of(n));
    seen->note = uint32_t(notes.size() - 1);
    counts.notes++;
    let_go(t);
}

namespace {

// Lets a note, and those that it is made from, write with the channels last; who sees the results sees turned ones.
void turn(uint32_t i, const Image& image) {
    const int64_t count = image.count();
    {
        Note& n = notes[i];
        using kernels::StepKind;
        const StepKind kind = n.step.kind;  // those whose elements do not depend on where they lie
        if (!(kind == StepKind::row || kind == StepKind::where || kind == StepKind::cast || kind == StepKind::join)) return;
        if (image.channels < 2 || image.places < 2 || n.reduced || product(n.layout.sizes) != count || !n.layout.is_contiguous() ||
            n.layout.offset)
            return;
        const std::optional<Layout> layout = turned_layout(n.layout, image);
        if (!layout) return;
        auto users = [&](auto each) {
            for (size_t j = i + 1; j < notes.size(); j++)
                for (Operand& o : operands_of(notes[j]))
                    if (o.kind == Operand::noted && o.note == i && !each(o)) return false;
            return true;
        };
        if (!users([&](Operand& o) { return turned_layout(o.layout, image).has_value(); })) return;
        users([&](Operand& o) { return o.layout = *turned_layout(o.layout, image), true; });
        n.layout = *layout;
    }
    if (Storage* seen = notes[i].out) {
        Storage* source = Storage::make(seen->bytes, seen->device);
        make_pending(source, i);
        notes[i].out = source;
        add_turned(seen, source, notes[i].step.result, image);
        source->drop();  // the turned value holds it
    }
    for (int k = 0; k < notes[i].step.count; k++) {
        const Operand o = notes[i].operands[k];
        if (o.kind != Operand::noted) continue;
        const int64_t made = product(notes[o.note].layout.sizes);
        if (made == count) turn(o.note, image);
        // a part of an image, or one that is joined with others, has other channels
        else if (const Dims& d = o.layout.sizes; d.size() == 4 && d[0] > 1 && d[2] * d[3] == image.places) {
            const int64_t step = o.layout.strides[0];
            if (step > 0 && step % image.places == 0 && made % step == 0) turn(o.note, {made / step, step / image.places, image.places});
        }
    }
}

bool made_from_turned(uint32_t i, int depth = 0) {
    const Note& n = notes[i];
    for (const Operand& o : operands_of(n)) {
        if (o.kind == Operand::noted && depth < 8 && made_from_turned(o.note, depth + 1)) return true;
        // memory with the channels last, which lie next to each other
        const Layout& l = o.layout;
        if (o.kind == Operand::memory && l.sizes.size() == 4 && l.strides[1] == 1 && l.sizes[1] > 1 && l.sizes[2] * l.sizes[3] > 1)
            return true;
    }
    return false;
}

// The image that x is, or is a part of the channels of.
Image image_of(const Tensor& x) {
    const int64_t places = x.size(2) * x.size(3);
    const int64_t all = int64_t(x.storage()->bytes) / x.item_size(), step = x.size(0) > 1 ? x.stride(0) : all;
    if (x.is_contiguous() || places == 0 || step <= 0 || step % places || all % step) return {x.size(0), x.size(1), places};
    return {all / step, step / places, places};
}

}  // namespace

void turn(const Tensor& x) { turn(x.storage()->note, image_of(x)); }

bool is_turned(const Tensor& x) {
    const Storage* s = x.storage();
    return x.dim() == 4 && (turned_of(s) || (is_pending(s) && made_from_turned(s->note)));
}

Tensor by_channels(const Tensor& x) {
    const Layout wanted{x.sizes(), strides_for(x.sizes(), MemoryFormat::channels_last), 0};
    if (x.layout().is_contiguous(MemoryFormat::channels_last)) return x;
    Storage* s = x.storage();
    const Image image = image_of(x);
    if (is_pending(s) && notes[s->note].step.result == x.dtype()) turn(s->note, image);
    // all of it, or a part
    if (const Turned* t = turned_of(s); t && x.is_contiguous() && x.offset() == 0 && t->image == image && t->dtype == x.dtype())
        return from_storage(t->source, wanted, x.dtype());
    const Tensor y = empty_strided(x.sizes(), wanted.strides, x.dtype(), x.device());
    kernels::ProgramStep step;
    step.kind = kernels::StepKind::cast;
    step.compute = step.block = step.result = x.dtype();
    const Arg operand(x);
    if (!turned_of(s) || !note(y, step, &operand, 1)) copy_values(y, x);
    return y;
}

Tensor turned(const Tensor& source) {
    const Tensor y = empty(source.sizes(), source.dtype(), source.device());
    if (source.numel())
        add_turned(y.storage(), source.storage(), source.dtype(), {source.size(0), source.size(1), source.size(2) * source.size(3)});
    return y;
}

Tensor source_of(const Tensor& t) {
    const Storage* s = t.storage();
    if (!is_pending(s) || !t.is_contiguous() || t.offset() != 0) return {};
    const Note& n = notes[s->note];
    const Operand& o = n.operands[0];
    if (n.step.kind != kernels::StepKind::cast || !n.device.is_cuda() || n.step.result != t.dtype() || o.kind != Operand::memory) return {};
    if (item_size(o.dtype) >= item_size(t.dtype()) || !o.layout.is_contiguous() || !n.layout.is_contiguous() || !o.storage->address)
        return {};
    return from_storage(o.storage, o.layout, o.dtype);
}

Repeated repeated_source(const Tensor& t) {
    const Storage* s = t.storage();
    if (!is_pending(s) || t.dim() != 4 || !t.is_contiguous() || t.offset() != 0) return {};
    const Note& n = notes[s->note];
    const Operand& o = n.operands[0];
    if (n.step.kind != kernels::StepKind::cast || !n.device.is_cuda() || n.step.result != t.dtype() || o.dtype != t.dtype()) return {};
    const Dims &made = n.layout.sizes, &steps = o.layout.strides;
    if (!n.layout.is_contiguous() || made.size() != 5 || made[2] < 2 || steps[2] != 0 || steps[4] != 1) return {};
    if (t.sizes() != Dims{made[0], made[1] * made[2], made[3], made[4]}) return {};
    uses[s->note].asleep = Uses::seen;  // who asks does not want the copy
    const Layout layout{{made[0], made[1], made[3], made[4]}, {steps[0], steps[1], steps[3], steps[4]}, o.layout.offset};
    if (o.kind == Operand::memory) return {o.storage->address ? from_storage(o.storage, layout, o.dtype) : Tensor(), made[2]};
    if (o.kind != Operand::noted) return {};
    Note& from = notes[o.note];
    if (from.out) return {from_storage(from.out, layout, o.dtype), made[2]};
    // Nobody else sees it: it gets memory of its own.
    Storage* source = Storage::make(size_t(bytes_of(from.layout, from.step.result)), from.device);
    make_pending(source, o.note);
    from.out = source;
    uses[o.note].asleep = Uses::awake;
    const Tensor result = from_storage(source, layout, o.dtype);
    source->drop();
    return {result, made[2]};
}

}  // namespace wisp::compile
