"""Detection models: their parts against plain formulas, shapes of results, training, names in files."""

import math

import pytest

import wisp
from wisp.vision import ops
from wisp.vision.models import detection, get_model, list_models
from wisp.vision.models.detection._utils import BalancedPositiveNegativeSampler, BoxCoder, Matcher
from wisp.vision.models.detection.backbone_utils import resnet_fpn_backbone
from wisp.vision.models.detection.transform import GeneralizedRCNNTransform, paste_masks_in_image


def small(kind, classes=3, **options):
    wisp.manual_seed(0)
    fewer = (
        {}
        if kind is detection.RetinaNet
        else {
            "rpn_pre_nms_top_n_test": 50,
            "rpn_post_nms_top_n_test": 10,
            "rpn_post_nms_top_n_train": 20,
            "box_detections_per_img": 5,
            "box_score_thresh": 0.0,
        }
    )
    return kind(
        resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5),
        classes,
        min_size=64,
        max_size=64,
        **fewer,
        **options,
    )


def target(**more):
    return {"boxes": wisp.tensor([[4.0, 4.0, 40.0, 50.0]]), "labels": wisp.tensor([1]), **more}


def test_box_coder_and_matcher():
    coder = BoxCoder((10.0, 10.0, 5.0, 5.0))
    boxes, others = wisp.tensor([[1.0, 2.0, 5.0, 9.0], [0.0, 0.0, 3.0, 3.0]]), wisp.tensor([[2.0, 2.0, 6.0, 6.0], [1.0, 0.0, 4.0, 2.0]])
    wisp.testing.assert_close(coder.decode(coder.encode([boxes], [others])[0], [others])[:, 0], boxes)
    quality = wisp.tensor([[0.9, 0.6, 0.2, 0.0], [0.1, 0.3, 0.25, 0.0]])
    assert Matcher(0.7, 0.3)(quality).tolist() == [0, -2, -1, -1]
    assert Matcher(0.7, 0.3, allow_low_quality_matches=True)(quality).tolist() == [0, 0, -1, -1]
    positive, negative = BalancedPositiveNegativeSampler(4, 0.5)([wisp.tensor([1, 1, 1, 0, 0, 0, -1])])
    assert positive[0].sum().item() == 2 and negative[0].sum().item() == 2 and positive[0][3:].sum().item() == 0


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [2, -1])
def test_roi_align_and_its_gradient(aligned, ratio):
    wisp.manual_seed(0)
    maps = wisp.randn(2, 3, 7, 9, dtype=wisp.float64, requires_grad=True)
    boxes = [
        wisp.tensor([[1.0, 2.0, 11.0, 9.0], [-3.0, 0.5, 4.0, 30.0]], dtype=wisp.float64),
        wisp.tensor([[2.0, 2.0, 2.5, 2.5]], dtype=wisp.float64),
    ]

    def reference(maps):
        results = []
        for picture, part in zip(maps, boxes):
            for left, top, right, bottom in (part * 0.5 - (0.5 if aligned else 0)).tolist():
                wide, tall = right - left, bottom - top
                if not aligned:
                    wide, tall = max(wide, 1), max(tall, 1)
                down, across = (ratio, ratio) if ratio > 0 else (max(1, -int(-tall // 2)), max(1, -int(-wide // 2)))
                cells = []
                for i in range(2):
                    for j in range(2):
                        total = 0
                        for a in range(down):
                            for b in range(across):
                                y, x = top + tall / 2 * (i + (a + 0.5) / down), left + wide / 2 * (j + (b + 0.5) / across)
                                if -1 <= y <= 7 and -1 <= x <= 9:
                                    y, x = min(max(y, 0), 6), min(max(x, 0), 8)
                                    y0, x0 = int(y), int(x)
                                    y1, x1 = min(y0 + 1, 6), min(x0 + 1, 8)
                                    total = total + (
                                        picture[:, y0, x0] * (1 - y + y0) * (1 - x + x0)
                                        + picture[:, y0, x1] * (1 - y + y0) * (x - x0)
                                        + picture[:, y1, x0] * (y - y0) * (1 - x + x0)
                                        + picture[:, y1, x1] * (y - y0) * (x - x0)
                                    )
                        cells.append(total / (down * across) if isinstance(total, wisp.Tensor) else picture[:, 0, 0] * 0)
                results.append(wisp.stack(cells, 1).reshape(3, 2, 2))
        return wisp.stack(results)

    found, expected = ops.roi_align(maps, boxes, 2, 0.5, ratio, aligned), reference(maps)
    wisp.testing.assert_close(found, expected)
    one, two = (wisp.autograd.grad(result.square().sum(), maps)[0] for result in (found, expected))
    wisp.testing.assert_close(one, two)
    assert ops.roi_align(maps, wisp.zeros(0, 5, dtype=wisp.float64), 2).shape == (0, 3, 2, 2)


def test_regions_come_from_the_level_of_their_size():
    levels = {"0": wisp.full((1, 1, 64, 64), 1.0), "1": wisp.full((1, 1, 32, 32), 2.0), "2": wisp.full((1, 1, 16, 16), 3.0)}
    pool = ops.MultiScaleRoIAlign(["0", "1", "2"], 2, 2)
    boxes = wisp.tensor([[0.0, 0.0, 20.0, 20.0], [0.0, 0.0, 130.0, 130.0], [0.0, 0.0, 250.0, 250.0]])
    assert pool(levels, [boxes], [(256, 256)])[:, 0, 0, 0].tolist() == [1.0, 2.0, 3.0]


def test_images_in_and_masks_out():
    transform = GeneralizedRCNNTransform(32, 40, [0.5] * 3, [0.5] * 3).eval()
    images, targets = transform(
        [wisp.full((3, 16, 20), 0.5), wisp.full((3, 64, 32), 1.0)], [target(), target(masks=wisp.ones(1, 64, 32, dtype=wisp.uint8))]
    )
    assert images.tensors.shape == (2, 3, 64, 64) and images.image_sizes == [(32, 40), (40, 20)]
    assert targets[0]["boxes"].tolist() == [[8.0, 8.0, 80.0, 100.0]] and targets[1]["masks"].shape == (1, 40, 20)
    pasted = paste_masks_in_image(wisp.ones(1, 1, 4, 4), wisp.tensor([[2.0, 3.0, 8.0, 9.0]]), (12, 10))
    assert pasted.shape == (1, 1, 12, 10) and pasted[0, 0, 6, 5].item() == 1 and pasted[0, 0, 0, 0].item() == 0


def test_every_kind_trains_and_finds():
    image = wisp.rand(3, 64, 64)
    kinds = (
        (detection.FasterRCNN, {}, {}, set()),
        (detection.MaskRCNN, {}, {"masks": wisp.ones(1, 64, 64, dtype=wisp.uint8)}, {"masks"}),
        (
            detection.KeypointRCNN,
            {"num_keypoints": 2},
            {"keypoints": wisp.tensor([[[10.0, 10.0, 1.0], [30.0, 20.0, 1.0]]])},
            {"keypoints", "keypoints_scores"},
        ),
        (detection.RetinaNet, {}, {}, set()),
    )
    for kind, options, more, extra in kinds:
        model = small(kind, **options)
        losses = model([image], [target(**more)])
        total = sum(losses.values())
        total.backward()
        assert wisp.isfinite(total) and all(p.grad is not None for name, p in model.named_parameters() if "fpn.inner" in name)
        with wisp.no_grad():
            found = model.eval()([image, wisp.rand(3, 50, 60)])
        assert len(found) == 2 and set(found[0]) == {"boxes", "labels", "scores"} | extra
        count = len(found[0]["boxes"])
        if "masks" in extra:
            assert found[0]["masks"].shape == (count, 1, 64, 64)
        if "keypoints" in extra:
            assert found[0]["keypoints"].shape == (count, 2, 3)


def test_a_few_steps_lower_the_loss():
    model = small(detection.FasterRCNN)
    optimizer = wisp.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.002)
    image, totals = wisp.rand(3, 64, 64), []
    for _ in range(4):
        total = sum(model([image], [target()]).values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(total.item())
    assert totals[-1] < totals[0]


def test_names_of_files_and_models():
    assert {"fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn", "keypointrcnn_resnet50_fpn"} <= set(
        list_models()
    )
    model = small(detection.MaskRCNN)
    names = set(model.state_dict())
    assert {
        "backbone.body.layer1.0.conv1.weight",
        "backbone.fpn.inner_blocks.0.0.weight",
        "rpn.head.conv.0.0.weight",
        "rpn.head.bbox_pred.bias",
        "roi_heads.box_head.fc6.weight",
        "roi_heads.box_predictor.cls_score.weight",
        "roi_heads.mask_head.3.0.bias",
        "roi_heads.mask_predictor.conv5_mask.weight",
    } <= names
    old = {name.replace("rpn.head.conv.0.0.", "rpn.head.conv."): value for name, value in model.state_dict().items()}
    for place in range(4):
        for part in ("weight", "bias"):
            for kind in ("inner_blocks", "layer_blocks"):
                old[f"backbone.fpn.{kind}.{place}.{part}"] = old.pop(f"backbone.fpn.{kind}.{place}.0.{part}")
            old[f"roi_heads.mask_head.mask_fcn{place + 1}.{part}"] = old.pop(f"roi_heads.mask_head.{place}.0.{part}")
    model.load_state_dict(old)  # keys of older files
    assert detection.FasterRCNN_ResNet50_FPN_Weights.DEFAULT.url.endswith("fasterrcnn_resnet50_fpn_coco-258fb6c6.pth")
    made = get_model("fasterrcnn_mobilenet_v3_large_320_fpn", weights=None, weights_backbone=None, num_classes=2)
    assert sum(p.numel() for p in made.parameters()) == 18954629


def test_errors():
    model = small(detection.FasterRCNN)
    with pytest.raises(AssertionError, match="targets should not be none"):
        model([wisp.rand(3, 64, 64)])
    with pytest.raises(AssertionError, match="positive height and width"):
        model([wisp.rand(3, 64, 64)], [{"boxes": wisp.tensor([[4.0, 4.0, 4.0, 9.0]]), "labels": wisp.tensor([1])}])
    with pytest.raises(TypeError, match="floating type"):
        model.eval()([wisp.zeros(3, 8, 8, dtype=wisp.uint8)])
    with pytest.raises(ValueError, match="out_channels"):
        detection.FasterRCNN(wisp.nn.ReLU(), 2)
    losses = model.train()([wisp.rand(3, 64, 64)], [{"boxes": wisp.zeros(0, 4), "labels": wisp.zeros(0, dtype=wisp.int64)}])
    assert all(wisp.isfinite(loss) for loss in losses.values())  # an image without anything in it


def test_position_sensitive_regions():
    # each cell of a region looks at its own channels: the numbers of torchvision's loops, written out
    from wisp.vision.ops import PSRoIAlign, PSRoIPool, ps_roi_pool, roi_align

    rows, columns, channels = 2, 3, 2
    x = wisp.randn(2, channels * rows * columns, 9, 11, requires_grad=True)
    boxes = wisp.tensor([[0, 1.0, 0.0, 9.0, 7.0], [1, -3.0, 2.5, 4.5, 30.0], [1, 2.0, 2.0, 2.0, 2.0]])
    every = roi_align(x, boxes, (rows, columns), 0.9, 2, True)
    out = PSRoIAlign((rows, columns), 0.9, 2)(x, boxes)
    assert out.shape == (3, channels, rows, columns)
    for c in range(channels):
        for i in range(rows):
            for j in range(columns):
                assert wisp.equal(out[:, c, i, j], every[:, (c * rows + i) * columns + j, i, j])
    out.sum().backward()
    assert x.grad.abs().sum() > 0
    x = x.detach()
    out = PSRoIPool((rows, columns), 1.0)(x, boxes)
    for k, (number, *corners) in enumerate(boxes.tolist()):
        left, top, right, bottom = (math.floor(abs(v) + 0.5) * (1 if v > 0 else -1) for v in corners)
        for c in range(channels):
            for i in range(rows):
                for j in range(columns):
                    tall, wide = max(bottom - top, 1) / rows, max(right - left, 1) / columns
                    a, b = (min(max(v + top, 0), 8) for v in (math.floor(i * tall), math.ceil((i + 1) * tall)))
                    d, e = (min(max(v + left, 0), 10) for v in (math.floor(j * wide), math.ceil((j + 1) * wide)))
                    cell = x[int(number), (c * rows + i) * columns + j, a:b, d:e]
                    assert abs((cell.mean() if cell.numel() else wisp.tensor(0.0)).item() - out[k, c, i, j].item()) < 1e-5
    listed = ps_roi_pool(x, [boxes[:1, 1:], boxes[1:, 1:]], (rows, columns))
    assert wisp.equal(listed, out) and ps_roi_pool(x, boxes[:0], (rows, columns)).shape == (0, channels, rows, columns)
    with pytest.raises(RuntimeError, match="must be a multiple of pooling height"):
        ps_roi_pool(x, boxes, 5)
