-- Which of these claims are still their owners', renewed or not.
SELECT c.owner
  FROM semel_claim AS c JOIN json_each(:owners) AS o ON hex(c.owner) = o.value
 WHERE c.status = 0
